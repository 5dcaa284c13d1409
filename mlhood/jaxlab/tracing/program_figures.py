"""Drawings of traced programs."""

from __future__ import annotations

from typing import Any

from mlhood.compiler.hir.drawing.styles import STYLES
from mlhood.errors import TraceError
from mlhood.graph_drawing import Drawing, Scene, Wire, draw_scene
from mlhood.jaxlab.tracing.boxes import end_box, heading, operation_box, shape_port

_MAX_EQUATIONS = 150


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
