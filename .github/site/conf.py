"""The course as pages: `sphinx-build -c .github/site . site`; notebooks appear with the outputs that they have."""

import json
import re
import shutil
import sys
from importlib import import_module
from pathlib import Path

ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT))
MENUS = {
    "Projects": "P?.ipynb",
    "How to": "about/how-to/*.md",
    "Package": "mlhood/*/README.md",
    "About": "about/*.md",
    "Teaching": "mlhood/grading/INSTRUCTORS.md",
}

project = html_title = "Machine Learning under the hood"
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx.ext.napoleon", "sphinx.ext.viewcode", "sphinx.ext.githubpages"]
root_doc = "README"
include_patterns = ["README.md", "P?.ipynb", "about/**.md", "mlhood/**.md"]
exclude_patterns = ["mlhood/compiler/backends/c/templates/*"]
html_theme = "furo"
html_copy_source = html_show_copyright = smartquotes = False
nb_execution_mode = "off"
nb_merge_streams = True
myst_enable_extensions = ["dollarmath"]
myst_heading_anchors = 4
default_role = "code"  # docstrings mark code as Markdown does
add_module_names = napoleon_numpy_docstring = False
autodoc_member_order = "bysource"
autodoc_default_options = {"no-value": True}  # a constant may be long, and may name this machine
python_maximum_signature_line_length = 80
suppress_warnings = ["myst.xref_missing", "ref.python", "toc.not_included", "mystnb.unknown_mime_type"]

# GitHub Pages leaves out folders whose names begin with a dot: Sphinx reads `.github` through a link to it
if not (ROOT / "about").exists():
    (ROOT / "about").symlink_to(".github", target_is_directory=True)


def setup(app):
    """Register with Sphinx."""
    app.connect("source-read", lambda app, page, source: source.insert(0, adapted(page, source.pop())))
    app.connect("autodoc-process-docstring", mark_code, priority=400)
    app.connect("build-finished", lambda app, _: shutil.copy(app.outdir / "README.html", app.outdir / "index.html"))


def adapted(page, text):
    """Return a page of the repository as one of the site."""

    def target(link):  # of a folder its README or, as a file to load, its `__init__.py`
        names = [name for name in ("README.md", "__init__.py") if ((ROOT / page).parent / link[0] / name).is_file()]
        return "/".join([link[0], *names[:1]]).replace(".github/", "about/")

    text = re.sub(r"(?<=\]\()[^)#\s]+", target, text)
    if page == "README":
        text = re.sub(r"^\[!.*/actions/.*\n", "", text, flags=re.MULTILINE)  # a badge of GitHub's own pages
        for caption, pattern in MENUS.items():
            pages = [str(path.relative_to(ROOT).with_suffix("")) for path in sorted(ROOT.glob(pattern))]
            text += "\n".join(["\n```{toctree}", ":hidden:", f":caption: {caption}\n", *pages, "```\n"])
    if page == "about/INTERFACE":
        for module, names in re.findall(r"^\| `(.*?)` \| (.*?) \|", text, re.MULTILINE):
            for name in re.findall(r"\w+", names):  # some are loaded when they are first used
                setattr(import_module(module), name, getattr(import_module(module), name))
            options = f"   :members: {names.replace('`', '')}"
            text += f"\n## {module}\n\n```{{eval-rst}}\n.. automodule:: {module}\n{options}\n```\n"
    return notebook(json.loads(text)) if text.startswith("{") else text


def notebook(content):
    """Return a notebook with solutions folded, and with alternative texts of pictures where MyST-NB reads them."""
    for cell in content["cells"]:
        if cell["cell_type"] == "code" and cell["metadata"].get("mlhood", {}).get("role") == "solution":
            cell["metadata"]["tags"] = [*cell["metadata"].get("tags", []), "hide-input"]
        for output in cell.get("outputs", []):
            if alt := output.get("metadata", {}).get("image/png", {}).get("alt"):
                cell["metadata"]["mystnb"] = {"image": {"alt": alt}}
    return json.dumps(content)


def mark_code(app, what, name, value, options, lines):
    """Say of an indented block after an empty line that it is code, as it is in Markdown."""
    for i in range(len(lines) - 1, 1, -1):
        if lines[i].startswith("    ") and not lines[i - 1] and re.match(r"[^\s\d*-]", lines[i - 2]):
            lines[i - 1 : i - 1] = ["", "::"]
