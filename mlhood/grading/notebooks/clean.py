"""Bring an executed notebook into the form in which it is kept: two runs differ only in what came out."""

from __future__ import annotations

import base64
import io

from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"
COLOURS = 256
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def tidy(notebook: NotebookNode) -> None:
    """Normalise a notebook in place.

    1. Cells count from 1 in the order in which they stand.
    2. No times of execution, no widget state, no version of the Python that ran it.
    3. Neighbouring pieces of one stream become one output.
    4. Pictures have a palette of 256 colours: drawings have few, and a notebook is kept small.
    """
    notebook.metadata.pop("widgets", None)
    notebook.metadata["kernelspec"] = NotebookNode(KERNEL)
    notebook.metadata["language_info"] = NotebookNode(name="python")
    count = 0
    for cell in notebook.cells:
        for key in ("execution", "ExecuteTime", "collapsed"):
            cell.metadata.pop(key, None)
        if cell.cell_type == "code":
            count += cell.execution_count is not None
            _tidy_outputs(cell, count)


def clear(notebook: NotebookNode) -> None:
    """Remove the outputs of all cells, in place."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _tidy_outputs(cell: NotebookNode, count: int) -> None:
    if cell.execution_count is not None:
        cell.execution_count = count
    cell.outputs = _joined([output for output in cell.outputs if WIDGET not in output.get("data", {})])
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count
        if PNG in output.get("data", {}):
            output.data[PNG] = _smaller(output.data[PNG])


def _joined(outputs: list[NotebookNode]) -> list[NotebookNode]:
    joined: list[NotebookNode] = []
    for output in outputs:
        before = joined[-1] if joined else None
        if before and output.output_type == before.output_type == "stream" and output.name == before.name:
            before.text += output.text
        else:
            joined.append(output)
    return joined


def _smaller(png: str) -> str:
    """Return a picture with a palette, or as it was if that is not smaller."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        if image.mode == "P":
            return png
        packed = io.BytesIO()
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(packed, "PNG", optimize=True)
    found = base64.b64encode(packed.getvalue()).decode()
    return found if len(found) < len(png) else png
