"""SCALE-Sim's topology files: a CSV file with a header, and a layer a row.

A convolution has name, image height and width, window height and width, channels, filters and the stride; SCALE-Sim 2
lets the stride's width follow, SCALE-Sim 3 a ratio N:M of weights that are not zero. A matrix product has name, M, N, K
and, again, the ratio. Rows end with a comma, which may be missing here. The ratio is read and left alone: it counts in
SCALE-Sim only where the configuration asks for sparsity, which has no model here.
"""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

from mlhood.dataflow.systolic.config import read_text
from mlhood.dataflow.systolic.layer import Layer, gemm_layer
from mlhood.errors import DataflowError

CONVOLUTION = ("IFMAP height", "IFMAP width", "filter height", "filter width", "channels", "filters", "stride")
PRODUCT = ("M", "N", "K")
_RATIO = re.compile(r"\d+\s*:\s*\d+")
_DIGITS = 18  # of a size; Python refuses to read thousands of them


def read_topology(path: str | Path) -> list[Layer]:
    """Return the layers of a SCALE-Sim topology, convolutions or matrix products by their number of values.

    As in SCALE-Sim, a name with "DP" in it is a depthwise convolution: one layer for each channel, of one channel each.

    Raises:
        DataflowError: The file cannot be read, has no header or no layers, or a row is not one.
    """
    path = Path(path)
    lines = [(number, line.strip()) for number, line in enumerate(read_text(path).splitlines(), 1)]
    if lines and _is_layer(lines[0][1]):
        raise DataflowError(
            "the header is missing",
            where=f"{path}, line 1",
            expected="a line that names the columns, which is not read",
            got=lines[0][1],
            todo="put a header in front, or this layer would be left out",
        )
    rows = [(number, line) for number, line in lines[1:] if line.strip(", \t")]
    if not rows:
        raise DataflowError(
            "this topology has no layers",
            where=path,
            expected="a header, then a layer a row",
            got=f"{len(lines)} lines",
        )
    return [layer for number, line in rows for layer in _layers(line, f"{path}, line {number}")]


def _is_layer(line: str) -> bool:
    """Whether a line is a layer by its numbers, so that it cannot be the header."""
    _, *values = [value.strip() for value in line.removesuffix(",").split(",")]
    return len(values) >= len(PRODUCT) and all(value.isdecimal() or _RATIO.fullmatch(value) for value in values)


def _layers(line: str, where: str) -> list[Layer]:
    name, *values = [value.strip() for value in line.removesuffix(",").split(",")]
    if values and _RATIO.fullmatch(values[-1]):
        values.pop()
    if len(values) not in (len(PRODUCT), len(CONVOLUTION), len(CONVOLUTION) + 1):
        raise DataflowError(
            "this row is no layer",
            where=where,
            expected=f"a name and {', '.join(CONVOLUTION)}; or a name and {', '.join(PRODUCT)}; with commas between",
            got=line,
        )
    sizes = [_size(value, where) for value in values]
    try:
        if len(sizes) == len(PRODUCT):
            return [gemm_layer(name, *sizes)]
        return _convolutions(name, sizes)
    except DataflowError as error:
        raise DataflowError(error.what, **(_keywords(error) | {"where": f"{where} ({name})"})) from error


def _convolutions(name: str, sizes: list[int]) -> list[Layer]:
    *first, stride = sizes[: len(CONVOLUTION)]
    layer = Layer(name, *first, stride_height=stride, stride_width=sizes[-1])
    if "DP" not in name:
        return [layer]
    channels = range(layer.channels)
    return [replace(layer, name=f"{name}Channel_{channel}", channels=1) for channel in channels]


def _size(text: str, where: str) -> int:
    if not text.isdecimal() or len(text) > _DIGITS or int(text) < 1:
        raise DataflowError("this is not a size", where=where, expected="a positive integer", got=repr(text))
    return int(text)


def _keywords(error: DataflowError) -> dict[str, str]:
    return {"todo" if label == "what to do" else label: text for label, text in error.parts.items()}
