"""Boxes in drawings of programs: operations in the style of their family, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable

from mlhood.compiler.hir.drawing.styles import FAMILIES, FLOAT
from mlhood.graph_drawing import Box, Line, Port, fit_text

_FAMILY_OPS = {
    "product": {"conv2d", "dense", "matmul"},
    "normalization": {"batch_norm"},
    "activation": {"relu", "tanh", "sigmoid", "softmax"},
    "pooling": {"max_pool", "global_average_pool", "sum", "mean", "cross_entropy"},
    "shape": {"reshape", "transpose", "copy"},
}


def heading(title: str, subtitle: str, details: Iterable[str] = (), width: int = 40) -> tuple[Line, ...]:
    """Return the lines of a box: a title, a name below it, and details of at most `width` characters."""
    lines = Line(fit_text(title), 13.0, bold=True), Line(fit_text(subtitle), 9.5, faint=True)
    return *lines, *(Line(fit_text(text, width)) for text in details)


def operation_box(op: str, name: str, lines: tuple[Line, ...], port: Port, arrows: int) -> Box:
    """Return the box of an operation with one result, read by `port`, and `arrows` operands."""
    family = next((family for family, ops in _FAMILY_OPS.items() if op in ops), "arithmetic")
    return Box(("node", f"{op}, {name}"), FAMILIES[family], lines, (port,), [""] * arrows)


def end_box(kind: str, name: str, port: Port | None = None, arrows: int = 1) -> Box:
    """Return the box of an input, or of an output if it has no port, with space for `arrows` operands."""
    lines = Line(fit_text(name), 12.0, bold=True), Line(fit_text(kind), 9.5, faint=True)
    return Box((kind, name), FAMILIES["end"], lines, () if port is None else (port,), [""] * arrows)


def shape_port(shape: tuple[int, ...]) -> Port:
    """Return a port that is labelled with the value's shape."""
    return Port((Line(shape_text(shape), 10.0),), FLOAT)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as "[2, 3]"."""
    return f"[{', '.join(map(str, shape))}]"
