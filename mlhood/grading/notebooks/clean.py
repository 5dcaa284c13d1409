"""Normalize an executed notebook for storing it: the files of two runs differ only in their outputs."""

from __future__ import annotations

import base64
import io

from nbformat import NotebookNode

WIDGET = "application/vnd.jupyter.widget-view+json"
PNG = "image/png"
COLOURS = 256
KERNEL = {"display_name": "Python 3 (ipykernel)", "language": "python", "name": "python3"}


def clean(notebook: NotebookNode) -> None:
    """Normalize a notebook in place.

    1. Execution counts begin at 1, in the order of the cells.
    2. Execution times, widget state and the version of the Python that ran it are removed.
    3. Adjacent outputs of the same stream are merged.
    4. Pictures are converted to a palette of 256 colours, to keep the notebook small.
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
            _clean_outputs(cell, count)


def clear_outputs(notebook: NotebookNode) -> None:
    """Remove the outputs and execution counts of all cells, in place."""
    for cell in notebook.cells:
        if cell.cell_type == "code":
            cell.outputs, cell.execution_count = [], None


def _clean_outputs(cell: NotebookNode, count: int) -> None:
    if cell.execution_count is not None:
        cell.execution_count = count
    cell.outputs = _merge_streams([output for output in cell.outputs if WIDGET not in output.get("data", {})])
    for output in cell.outputs:
        if output.output_type == "execute_result":
            output.execution_count = cell.execution_count
        if PNG in output.get("data", {}):
            output.data[PNG] = _with_palette(output.data[PNG])


def _merge_streams(outputs: list[NotebookNode]) -> list[NotebookNode]:
    merged: list[NotebookNode] = []
    for output in outputs:
        last = merged[-1] if merged else None
        if last and output.output_type == last.output_type == "stream" and output.name == last.name:
            last.text += output.text
        else:
            merged.append(output)
    return merged


def _with_palette(png: str) -> str:
    """Return a picture with a palette, or the picture itself if that is not smaller."""
    from PIL import Image

    with Image.open(io.BytesIO(base64.b64decode(png))) as image:
        if image.mode == "P":
            return png
        buffer = io.BytesIO()
        image.convert("RGB").quantize(COLOURS, dither=Image.Dither.NONE).save(buffer, "PNG", optimize=True)
    converted = base64.b64encode(buffer.getvalue()).decode()
    return converted if len(converted) < len(png) else png
