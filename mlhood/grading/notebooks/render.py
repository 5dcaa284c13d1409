"""An executed notebook as one HTML page that needs no network and runs no scripts."""

from __future__ import annotations

import warnings

from nbformat import NotebookNode

# JupyterLab's template without the scripts that it loads from the network, and with alternative texts of pictures
TEMPLATE = """{% extends 'lab/index.html.j2' %}
{% block html_head_js %}{% endblock %}
{% block jupyter_widgets %}{% endblock %}
{% block html_head_js_mathjax %}{% endblock %}
{% block html_head_js_mermaidjs %}{% endblock %}
{% block html_head_css %}
<meta http-equiv="Content-Security-Policy" content="POLICY">
<style>
  main { max-width: 62rem; margin: 0 auto; padding: 1rem; }
  .jp-OutputPrompt, .jp-InputPrompt { flex: 0 0 4.5rem; color: #57606a; }
  .jp-InputArea-editor, .jp-OutputArea-output, .jp-RenderedHTMLCommon { overflow-x: auto; }
  .jp-OutputArea-output img { max-width: 100%; height: auto; }
  @media (max-width: 40rem) {
    main { padding: 0; }
    .jp-OutputPrompt, .jp-InputPrompt { display: none; }
  }
</style>
{% endblock %}
{% block data_png scoped %}
{%- set alt = output | get_metadata('alt', 'image/png') -%}
{{ super() | replace('<img', '<img alt="' ~ alt | escape_html ~ '"', 1) if alt else super() }}
{% endblock %}
"""
# the browser itself blocks scripts and the network, whatever an output contains
POLICY = "default-src 'none'; img-src data:; media-src data:; font-src data:; style-src 'unsafe-inline'"


def notebook_html(notebook: NotebookNode, title: str) -> str | None:
    """Return the page, or None if nbconvert is not installed or fails."""
    try:
        from nbconvert.exporters.html import HTMLExporter

        exporter = HTMLExporter()
        exporter.raw_template = TEMPLATE.replace("POLICY", POLICY)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # about pictures without a description and the like
            page, _ = exporter.from_notebook_node(notebook, {"metadata": {"name": title}})
    except Exception:  # templates can fail in any way, and the page is optional
        return None
    return page
