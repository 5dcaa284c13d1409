"""Element types and numbers in C99."""

from __future__ import annotations

import math
from collections.abc import Iterable

import numpy as np

# The element type in C, and the ending of helper functions for it.
TYPES: dict[str, str] = {
    "float32": "float",
    "float64": "double",
    "int8": "int8_t",
    "int16": "int16_t",
    "int32": "int32_t",
    "int64": "int64_t",
    "uint8": "uint8_t",
    "uint16": "uint16_t",
    "uint32": "uint32_t",
    "uint64": "uint64_t",
    "bool": "uint8_t",
}
SUFFIXES: dict[str, str] = {
    name: {"f": "f", "i": "i", "u": "u", "b": "u"}[np.dtype(name).kind] + str(8 * np.dtype(name).itemsize)
    for name in TYPES
}
_WIDTH = 110  # of a line of numbers


def number(value: float | int | bool | np.generic, element: str) -> str:
    """Return a number of an element type as a constant of C, which a C compiler reads back bit for bit."""
    if element in ("float32", "float64"):
        return _real(float(value), element)
    integer = int(value)
    if element == "uint64" or integer > 2**63 - 1:
        return f"UINT64_C({integer})"
    if integer == -(2**63):
        return "(-INT64_C(9223372036854775807) - 1)"
    if -(2**31) < integer < 2**31:
        return str(integer)
    return f"INT64_C({integer})"


def _real(value: float, element: str) -> str:
    with np.errstate(over="ignore"):
        value = float(np.float32(value)) if element == "float32" else value
    if math.isnan(value):
        return "NAN"
    if math.isinf(value):
        return "INFINITY" if value > 0 else "-INFINITY"
    text = f"{value:.9g}" if element == "float32" else repr(value)
    text = text if set(text) & set(".e") else text + ".0"
    return text + "f" if element == "float32" else text


def lines_of(numbers: Iterable[str]) -> list[str]:
    """Return numbers, separated by commas, as lines."""
    lines, line = [], ""
    for text in numbers:
        if len(line) + len(text) > _WIDTH:
            lines.append(line.rstrip())
            line = ""
        line += text + ", "
    return [*lines, line.rstrip().rstrip(",")] if line else lines


def table(name: str, values: Iterable[float | int], element: str) -> list[str]:
    """Return a static constant array, as lines."""
    texts = [number(value, element) for value in values]
    rows = [f"    {line}" for line in lines_of(texts)]
    if len(rows) == 1:
        return [f"static const {TYPES[element]} {name}[{len(texts)}] = {{{rows[0].strip()}}};"]
    return [f"static const {TYPES[element]} {name}[{len(texts)}] = {{", *rows, "};"]
