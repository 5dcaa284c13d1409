"""Boxes in drawings of programs: operations in the style of their family, inputs and outputs."""

from __future__ import annotations

from collections.abc import Iterable

from mlhood.graph_drawing.scene import REAL, Box, Port
from mlhood.graph_drawing.text_metrics import Line, said

_FAMILIES = {
    "product": {"conv2d", "dense", "matmul"},
    "normalization": {"batch_norm"},
    "activation": {"relu", "tanh", "sigmoid", "softmax"},
    "pooling": {"max_pool", "global_average_pool", "sum", "mean", "cross_entropy"},
    "shape": {"reshape", "transpose", "copy"},
}


def heading(title: str, subtitle: str, details: Iterable[str] = (), width: int = 40) -> tuple[Line, ...]:
    """Return the lines of a box: a title, a name below it, and details of at most `width` characters."""
    lines = Line(said(title), 13.0, bold=True), Line(said(subtitle), 9.5, faint=True)
    return *lines, *(Line(said(text, width)) for text in details)


def operation_box(op: str, name: str, lines: tuple[Line, ...], port: Port, arrows: int) -> Box:
    """Return the box of an operation with one result, read by `port`, and `arrows` operands."""
    family = next((family for family, ops in _FAMILIES.items() if op in ops), "arithmetic")
    return Box(("node", f"{op}, {name}"), family, lines, (port,), [""] * arrows)


def end_box(kind: str, name: str, port: Port | None = None, arrows: int = 1) -> Box:
    """Return the box of an input, or of an output if it has no port, with space for `arrows` operands."""
    lines = Line(said(name), 12.0, bold=True), Line(said(kind), 9.5, faint=True)
    return Box((kind, name), "end", lines, () if port is None else (port,), [""] * arrows)


def shape_port(shape: tuple[int, ...]) -> Port:
    """Return a port that is labelled with the value's shape."""
    return Port((Line(shape_text(shape), 10.0),), REAL)


def shape_text(shape: tuple[int, ...]) -> str:
    """Return a shape as "[2, 3]"."""
    return f"[{', '.join(map(str, shape))}]"
