"""A notebook of the course as a source of Sphinx: the same cells and outputs, written for MyST.

1. Anchors that GitHub reads from HTML, `<a id="p1-3"></a>`, become targets of MyST, `(p1-3)=`.
2. Solutions, and answers of written questions, are folded: who reads the page can try first.
3. Of an output that has HTML, such as a table of measurements, the HTML is shown.
4. Links lead to pages of the site; a table at the end leads to the interface that the notebook uses.
"""

from __future__ import annotations

import base64
import copy
import hashlib
import re
from collections.abc import Callable, Iterable, Iterator

from nbformat import NotebookNode
from nbformat.v4 import new_markdown_cell

from mlhood.grading.notebooks.interface import PublicName, by_module
from mlhood.grading.notebooks.notebook import PNG, label, notebook_text

HTML = "text/html"
_ANCHOR = re.compile(r'^<a id="([\w-]+)"></a>\s*$', re.MULTILINE)
_ANSWER = "<details class='answer'>\n<summary>An answer</summary>\n\n{}\n\n</details>"


def notebook_page(notebook: NotebookNode, rewrite: Callable[[str], str], names: Iterable[PublicName]) -> str:
    """Return the text of a notebook for MyST-NB.

    Args:
        notebook: Executed; it stays as it is.
        rewrite: From a text in Markdown to one whose links lead to pages of the site.
        names: What the notebook imports from the package.
    """
    page = copy.deepcopy(notebook)
    page.metadata["language_info"]["pygments_lexer"] = "ipython3"  # which knows the magics
    for cell in page.cells:
        role = getattr(label(cell), "role", "")
        if cell.cell_type == "markdown":
            cell.source = _ANCHOR.sub(r"\n(\1)=", rewrite(cell.source))
        if cell.cell_type == "markdown" and role == "question":
            cell.source = _ANSWER.format(cell.source)
        elif role == "solution":
            cell.metadata["tags"] = [*cell.metadata.get("tags", []), "hide-input"]
            cell.metadata["mystnb"] = {"code_prompt_show": "A solution", "code_prompt_hide": "A solution"}
        for output in cell.get("outputs", []):
            if HTML in output.get("data", {}):
                output.data = NotebookNode({HTML: output.data[HTML]})  # and not the data of a table beside it
    page.cells.append(new_markdown_cell(_interface_table(names), id="interface"))
    return notebook_text(page)


def _interface_table(names: Iterable[PublicName]) -> str:
    lines = ["## What this notebook imports", "", "| module | names |", "|---|---|"]
    for module, inside in by_module(names).items():
        links = ", ".join(f"{{py:obj}}`{name.name} <{name.full}>`" for name in inside)
        lines.append(f"| {{py:mod}}`{module}` | {links} |")
    return "\n".join(lines)


def alt_texts(notebook: NotebookNode) -> dict[str, str]:
    """Return the alternative texts of a notebook's pictures, by the SHA-256 of a picture, which MyST-NB names it by."""
    return {hashlib.sha256(data).hexdigest(): alt for data, alt in _pictures(notebook)}


def _pictures(notebook: NotebookNode) -> Iterator[tuple[bytes, str]]:
    for cell in notebook.cells:
        for output in cell.get("outputs", []):
            if PNG in output.get("data", {}):
                alt = output.get("metadata", {}).get(PNG, {}).get("alt", "")
                yield base64.b64decode(output.data[PNG]), alt
