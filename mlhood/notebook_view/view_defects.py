"""What looks wrong in a notebook on GitHub, as far as it can be said without a browser.

In the notebook: formulas that no renderer understands, tables that are text only, escape codes of a terminal, content
that GitHub removes, transparent pictures. In the page made from it: pictures without alternative text or from
elsewhere, raw TeX.
"""

from __future__ import annotations

import re
from base64 import b64decode
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from io import BytesIO

from bs4 import BeautifulSoup, Tag
from nbformat import NotebookNode
from PIL import Image

from mlhood.notebook_view.formulas import COMMAND, faults
from mlhood.notebook_view.github_view import KEPT_TAGS

SHORTEST_ALT = 20  # characters
CELL_ID = "cell-id="
_ESCAPE = "\x1b"
_FILE_NAME = re.compile(r"[^\s:]+|.*\.(png|svg|jpe?g|gif|webp)", re.IGNORECASE)
_NO_DESCRIPTION = "No description has been provided for this image"  # nbconvert's own text
_SHOWN = ("text/html", "text/markdown", "image/svg+xml", "image/png", "image/jpeg", "text/latex", "text/plain")
_CODE = ("pre", "code", "kbd", "samp")
_FRAME_SIZE = re.compile(r"^\[\d+ rows x \d+ columns\]$", re.MULTILINE)
_SERIES = re.compile(r"^(?:Name: .*, |Length: \d+, )*dtype: \w+$", re.MULTILINE)
_RULE = re.compile(r"^[\s|+]*(?:[-=─━]{3,}[\s|+┼]+)+[-=─━]{3,}[\s|+]*$", re.MULTILINE)
_NAMED_NUMBER = re.compile(r"\S.* {2,}-?[\d.,]+")  # a line of Series.to_string()
_GAP = re.compile(r"(?<=\S) {2,}")


@dataclass(frozen=True)
class Defect:
    """Something that looks wrong: in which notebook and cell (empty for the page as a whole), and what to do."""

    notebook: str
    cell: str
    what: str
    todo: str

    def __str__(self) -> str:
        """Return one line."""
        where = f"{self.notebook}, cell {self.cell}" if self.cell else self.notebook
        return f"{where}: {self.what}; {self.todo}"


def defects(notebook: NotebookNode, page: str, name: str) -> list[Defect]:
    """Return what is wrong in a notebook and in its page, in the order of the cells.

    Args:
        notebook: With its outputs.
        page: What `github_page` or `github_html` made of it.
        name: The notebook's name in messages.
    """
    found = [*_source_defects(notebook, name), *_page_defects(page, name)]
    order = {cell.id: position for position, cell in enumerate(notebook.cells)}
    return sorted(found, key=lambda defect: order.get(defect.cell, -1))


# -- the notebook


def _source_defects(notebook: NotebookNode, name: str) -> Iterator[Defect]:
    for cell in notebook.cells:
        if cell.cell_type == "markdown":
            yield from (Defect(name, cell.id, *fault) for fault in faults(cell.source))
        for output in cell.get("outputs", []):
            for detector in _OUTPUT_DETECTORS:
                yield from (Defect(name, cell.id, *fault) for fault in detector(output))


def _shown(output: NotebookNode) -> tuple[str, str]:
    """Return the format that GitHub shows of an output, and its text; the format is empty if it shows none."""
    if output.output_type == "stream":
        return "text/plain", output.text
    if output.output_type == "error":
        return "text/plain", "\n".join(output.traceback)
    kind = next((kind for kind in _SHOWN if kind in output.data), "")
    return kind, "".join(output.data.get(kind, ""))


def _escape_codes(output: NotebookNode) -> Iterator[tuple[str, str]]:
    kind, text = _shown(output)
    if kind == "text/plain" and _ESCAPE in text:
        line = next(line for line in text.splitlines() if _ESCAPE in line)
        yield f"escape codes of a terminal in {line[:60]!r}", "print without colours and without moving the cursor"


def _text_table(output: NotebookNode) -> Iterator[tuple[str, str]]:
    kind, text = _shown(output)
    if kind == "text/plain" and is_table(text):
        first = next(line for line in text.splitlines() if line.strip())
        yield f"a table as text only: {first.strip()[:60]!r}", "let a DataFrame be the cell's result, or display() it"


def is_table(text: str) -> bool:
    """Return whether a text is a table that pandas or a table printer has laid out with spaces or rules."""
    if _FRAME_SIZE.search(text) or _SERIES.search(text) or _RULE.search(text):
        return True
    lines = [line for line in text.splitlines() if line.strip()]
    if any(_is_series(lines[first : first + 4]) for first in range(len(lines) - 3)):
        return True
    if len(lines) < 3 or not lines[0].startswith(" ") or len({len(line) for line in lines}) > 1:
        return False
    columns = [len(_GAP.findall(line.rstrip())) for line in lines]
    return min(columns[1:]) >= 1 and len(set(columns[1:])) == 1


def _is_series(lines: list[str]) -> bool:
    return len({len(line) for line in lines}) == 1 and all(map(_NAMED_NUMBER.fullmatch, lines))


def _removed(output: NotebookNode) -> Iterator[tuple[str, str]]:
    kind, text = _shown(output)
    if not kind:
        yield f"GitHub shows nothing of {', '.join(output.data)}", "add a text/html or image/png version to the output"
    if kind in ("text/html", "text/markdown"):
        tags = {tag.name for tag in BeautifulSoup(text, "html.parser").find_all(True)}
        for tag in sorted(tags - KEPT_TAGS - {"style", "html", "head", "body"}):
            yield f"GitHub removes <{tag}> from the output", "show a picture or a plain HTML table instead"


def _transparent(output: NotebookNode) -> Iterator[tuple[str, str]]:
    kind, data = _shown(output)
    with suppress(OSError, ValueError):  # a browser finds what is no picture
        image = Image.open(BytesIO(b64decode(data))) if kind == "image/png" else None
        if image and image.has_transparency_data and image.convert("RGBA").getchannel("A").getextrema() != (255, 255):
            yield "a transparent picture, whose lines vanish in one theme", "save it with a white background"


_OUTPUT_DETECTORS: tuple[Callable[[NotebookNode], Iterator[tuple[str, str]]], ...] = (
    _escape_codes,
    _text_table,
    _removed,
    _transparent,
)

# -- the page


def _page_defects(html: str, name: str) -> Iterator[Defect]:
    page = BeautifulSoup(html, "html.parser")
    for cell in page.find_all(id=lambda value: bool(value) and value.startswith(CELL_ID)):
        cell_id = str(cell["id"]).removeprefix(CELL_ID)
        for detector in (_undescribed, _from_elsewhere, _raw_tex):
            yield from (Defect(name, cell_id, *fault) for fault in detector(cell))


def _undescribed(cell: Tag) -> Iterator[tuple[str, str]]:
    for picture in cell.find_all("img"):
        text = str(picture.get("alt") or "").strip()
        if text in ("", _NO_DESCRIPTION):
            yield (
                "a picture without alternative text",
                "figure functions call set_alt_text; in Markdown ![what it shows](...)",
            )
        elif len(text) < SHORTEST_ALT or _FILE_NAME.fullmatch(text):
            yield f"a picture whose alternative text is only {text!r}", "say what it shows"


def _from_elsewhere(cell: Tag) -> Iterator[tuple[str, str]]:
    for picture in cell.find_all("img"):
        source = str(picture.get("src") or "")
        if not source.startswith("data:"):
            yield (
                f"a picture from outside of the notebook: {source[:60]!r}",
                "attach it to the cell, make it an output, or put the file into the repository",
            )


def _raw_tex(cell: Tag) -> Iterator[tuple[str, str]]:
    for box in cell.select("code.formula"):
        if cell.find(class_="output_area"):  # in Markdown, the source says more
            yield f"a formula that is not understood: {box.get_text()[:60]!r}", "use the commands of MathJax"
    if "text_cell" in cell.get_attribute_list("class"):
        return
    for text in cell.find_all(string=COMMAND):
        if not any(parent.name in _CODE for parent in text.parents):
            yield f"raw TeX in an output: {str(text).strip()[:60]!r}", "put it between dollar signs, or in <code>"
