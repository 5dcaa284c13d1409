"""Drawings of traced programs, and the boxes of which drawings of programs consist."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

from mlhood.compiler.hir.describe import FAMILIES, FLOAT, STYLES
from mlhood.errors import TraceError
from mlhood.graph_drawing import Box, Drawing, Line, Port, Scene, Wire, draw_scene, fit_text

_FAMILY_OPS = {
    "product": {"conv2d", "dense", "matmul"},
    "normalization": {"batch_norm"},
    "activation": {"relu", "tanh", "sigmoid", "softmax"},
    "pooling": {"max_pool", "global_average_pool", "sum", "mean", "cross_entropy"},
    "shape": {"reshape", "transpose", "copy"},
}
_MAX_EQUATIONS = 150


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


def program_graph(program: Any) -> Drawing:
    """Draw a program from top to bottom.

    Args:
        program: A `tracer.Program`; its module is not imported here, as its `draw` calls this function.

    Raises:
        TraceError: The program is too long, or a variable is used before its definition.
    """
    if len(program.equations) > _MAX_EQUATIONS:
        raise TraceError(
            "the program is too long to be drawn",
            expected=f"at most {_MAX_EQUATIONS} equations",
            got=len(program.equations),
            todo="trace and draw a part: one block, or one layer",
        )
    return draw_scene(_scene(program), name="a traced program")


def _scene(program: Any) -> Scene:
    names = program.names()  # has variables as keys, as opposed to literals
    scene = Scene("program", [], [], STYLES)
    box_of: dict[Any, int] = {}
    defined = {equation.output for equation in program.equations}
    for variable, name in names.items():
        if variable not in defined:
            box_of[variable] = len(scene.boxes)
            kind = "input" if variable in program.inputs else "undefined"
            scene.boxes.append(end_box(kind, name, shape_port(variable.shape)))
    for equation in program.equations:
        name, used = names[equation.output], [operand for operand in equation.inputs if operand in names]
        if any(variable not in box_of for variable in used):
            raise TraceError("a variable is used before its definition", where=f"{equation.op}, which defines {name}")
        # with a literal among the operands, the box shows all of them
        operands = [names.get(operand) or repr(operand) for operand in equation.inputs]
        details = [" ".join([equation.op, *operands])] if len(used) < len(equation.inputs) else []
        lines = heading(equation.op, name, details)
        box_of[equation.output] = box = len(scene.boxes)
        scene.boxes.append(operation_box(equation.op, name, lines, shape_port(equation.output.shape), len(used)))
        scene.wires += [Wire(box_of[variable], 0, box, slot) for slot, variable in enumerate(used)]
    for i, output in enumerate(program.outputs):
        name = "result" if len(program.outputs) == 1 else f"result {i}"
        if output in names:
            scene.wires.append(Wire(box_of[output], 0, len(scene.boxes), 0))
        scene.boxes.append(end_box("output" if output in names else repr(output), name))
    return scene
