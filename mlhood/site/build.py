"""Building the site: sources, Sphinx, a check of every link, and only then the folder of the site."""

from __future__ import annotations

import importlib.util
import io
import re
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any
from warnings import catch_warnings, simplefilter

from mlhood.errors import OutputError, SiteError
from mlhood.files.paths import make_folder
from mlhood.site.api_pages import source_link
from mlhood.site.links import link_faults
from mlhood.site.listings import write_listings
from mlhood.site.sources import LISTING_SCHEME, course_sources

INSTALL = 'pip install -e ".[site]"'
PACKAGES = ("furo", "myst_nb", "sphinx")
TITLE = "Machine Learning under the hood"
MARK = "searchindex.js"  # which every site has, and hardly anything else
_COLOUR = re.compile(r"\x1b\[[0-9;]*m")

OnStep = Callable[[str, int, int], None]
"""Called with what is being done, how much of it is done, and how much there is."""


def build_site(root: Path, out: Path, on_step: OnStep = lambda what, done, total: None) -> int:
    """Build the site of the course in `root` into the folder `out`, and return how many pages it has.

    Args:
        root: The folder of the course.
        out: A new or empty folder, or an earlier site, which is replaced once the new one is complete.
        on_step: Called on progress.

    Raises:
        SiteError: A package is missing, Sphinx warns of something, or a link leads nowhere.
        NotebookError: There are no notebooks here, or one cannot be read.
        OutputError: The folder has something else in it, or cannot be written.
    """
    missing = [name for name in PACKAGES if importlib.util.find_spec(name) is None]
    if missing:
        raise SiteError("the site needs more packages", got=f"no {', no '.join(missing)}", todo=f"run: {INSTALL}")
    out = out.resolve()
    _check_target(root.resolve(), out)
    make_folder(out.parent)
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=f".{out.name}-", ignore_cleanup_errors=True) as folder:
            html = _build(root, Path(folder), on_step)
            if out.is_dir():
                shutil.rmtree(out)
            html.rename(out)
    except OSError as error:
        raise OutputError(
            "the site cannot be written",
            where=error.filename or out,
            got=error.strerror or str(error),
            todo="choose another folder with --out, or free space in this one",
        ) from None
    return len([*out.rglob("*.html")])


def _check_target(root: Path, out: Path) -> None:
    if root.is_relative_to(out) or out.is_relative_to(root / "mlhood") or out.is_relative_to(root / "tests"):
        raise OutputError(
            "the site would overwrite the course", where=out, todo="choose a new folder: mlhood site --out site"
        )
    if out.exists() and not out.is_dir():
        raise OutputError("the site needs a folder", where=out, got="a file", todo="choose another name")
    present = sorted(path.name for path in out.iterdir()) if out.is_dir() else []
    if present and MARK not in present:
        raise OutputError(
            "the folder is not empty, and what is in it is not a site",
            where=out,
            expected="a new or empty folder, or an earlier site",
            got=", ".join(present[:5]),
            todo="choose another folder",
        )


def _build(root: Path, folder: Path, on_step: OnStep) -> Path:
    sources = course_sources(root)
    for name, data in sources.files.items():
        path = folder / "source" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    html = folder / "html"
    faults = _run_sphinx(folder / "source", html, folder / "state", sources.alt_texts, on_step)
    if not faults:
        write_listings(root, sources.listed, html, TITLE)
        faults = link_faults(html)
    if faults:
        raise SiteError(
            f"the site has {len(faults)} faults",
            got="\n" + "\n".join(f"    {fault}" for fault in faults),
            todo="correct what each line names; an earlier site is unchanged",
        )
    shutil.rmtree(html / "_sources", ignore_errors=True)
    return html


def _run_sphinx(source: Path, html: Path, state: Path, alt_texts: dict[str, str], on_step: OnStep) -> list[str]:
    """Run Sphinx, and return its warnings."""
    from sphinx.application import Sphinx
    from sphinx.errors import SphinxError
    from sphinx.util.docutils import docutils_namespace

    warnings = io.StringIO()
    settings = _settings(alt_texts)
    try:
        # Sphinx's own extensions use parts of Sphinx that it deprecates
        with catch_warnings(), docutils_namespace():
            simplefilter("ignore", DeprecationWarning)
            simplefilter("ignore", PendingDeprecationWarning)
            app = Sphinx(
                source, None, html, state, "html", confoverrides=settings, status=None, warning=warnings, freshenv=True
            )
            _watch(app, on_step)
            app.build(force_all=True)
    except SphinxError as error:
        warnings.write(f"{error}\n")
    text = _COLOUR.sub("", warnings.getvalue()).replace(f"{source}/", "")
    return [line for line in text.splitlines() if line.strip()]


def _watch(app: Any, on_step: OnStep) -> None:
    done: dict[str, int] = {"reading": 0, "writing": 0}

    def step(what: str) -> None:
        done[what] += 1
        on_step(what, done[what], len(app.env.found_docs))

    app.connect("source-read", lambda app, docname, content: step("reading"))
    app.connect("doctree-resolved", lambda app, doctree, docname: step("writing"))


def _settings(alt_texts: dict[str, str]) -> dict[str, Any]:
    from mlhood.site.extension import STATIC

    return {
        "project": TITLE,
        "author": "The mlhood maintainers",
        "extensions": [
            "sphinx.ext.autodoc",
            "sphinx.ext.napoleon",
            "sphinx.ext.linkcode",
            "sphinx.ext.githubpages",
            "myst_nb",
            "mlhood.site.extension",
        ],
        "nb_execution_mode": "off",
        "nb_merge_streams": True,
        "myst_enable_extensions": ["dollarmath"],
        "myst_heading_anchors": 4,
        "myst_url_schemes": {**dict.fromkeys(("http", "https", "mailto")), LISTING_SCHEME: {"url": "{{path}}"}},
        "linkcode_resolve": source_link,
        # quotation marks and dashes as they were written
        "smartquotes": False,
        "alt_texts": alt_texts,
        "html_math_renderer": "drawing",
        # docstrings mark code as Markdown does
        "default_role": "code",
        "add_module_names": False,
        "autodoc_member_order": "bysource",
        "autodoc_typehints_format": "short",
        "python_maximum_signature_line_length": 80,
        "napoleon_numpy_docstring": False,
        "nitpicky": True,
        # types of other packages and of modules that notebooks do not import have no page
        "nitpick_ignore_regex": [("py:(class|data|exc|func|meth|attr)", ".*")],
        "html_theme": "furo",
        "html_title": TITLE,
        "html_static_path": [str(STATIC)],
        "html_copy_source": False,
        "html_show_copyright": False,
        "pygments_style": "default",
    }
