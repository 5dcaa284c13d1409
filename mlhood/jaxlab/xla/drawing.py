"""Drawings of optimised HLO: the steps of the entry computation, without the preparation of weights.

draw(view(logits, params, x)).save("resnet.svg")  # or displayed by a notebook
"""

from __future__ import annotations

import re
import textwrap
from collections import Counter
from collections.abc import Collection, Iterator
from typing import NamedTuple

from mlhood.compiler.hir.describe import FAMILIES, FLOAT, INTEGER, STYLES
from mlhood.errors import XlaError
from mlhood.graph_drawing import Box, Drawing, Line, Port, Scene, Wire, draw_scene, fit_text
from mlhood.jaxlab.tracing.program_figures import end_box, heading
from mlhood.jaxlab.xla.hlo import HloInstruction, Module
from mlhood.jaxlab.xla.views import View

PRODUCTS = ("convolution", "dot")
POOLINGS = ("reduce-window", "reduce")
_WIDTH = 32  # characters of a line of opcodes
_MAX_DETAILS = 8  # lines below the name
_MAX_LISTED = 16  # opcodes up to which they are listed one by one
_FUSIONS = {"kOutput": "into its product", "kCustom": "by a library"}
_FAMILIES = {
    "activation": {"maximum", "minimum", "clamp", "exponential", "tanh", "logistic", "log", "erf"},
    "arithmetic": {"add", "subtract", "multiply", "divide", "negate", "abs", "sqrt", "rsqrt", "power"},
    "shape": {"broadcast", "reshape", "transpose", "copy", "bitcast", "slice", "pad", "concatenate"},
}


class Step(NamedTuple):
    """The contents of one box: an instruction, and the names of the steps whose values it reads."""

    instruction: HloInstruction
    sources: tuple[str, ...]


def opcodes(module: Module, instruction: HloInstruction) -> tuple[str, ...]:
    """Return the opcodes inside a fusion or a called function, or the instruction's own opcode."""
    if instruction.opcode not in ("fusion", "call"):
        return (instruction.opcode,)
    return tuple(
        opcode
        for name in instruction.calls
        for inner in module.computations[name].instructions.values()
        if inner.opcode not in ("parameter", "constant")
        for opcode in opcodes(module, inner)
    )


def callee(call: HloInstruction) -> str:
    """Return the called function's name without the suffixes that make it unique: relu_3 and relu_3.4 are relu."""
    return re.sub(r"([._]\d+)+$", "", call.calls[0])


def outputs(module: Module) -> tuple[str, ...]:
    """Return the names of the instructions that compute the module's results."""
    root = module.entry.root
    return root.operands if root.opcode == "tuple" else (root.name,)


def steps(module: Module, data: Collection[int] | None = None) -> list[Step]:
    """Return the steps, each after those that it reads.

    Args:
        module: A module of HLO.
        data: Numbers of the parameters to follow, None for all. What depends on none of them is not a step, but an
            operand of one.

    Raises:
        XlaError: No result depends on these parameters.
    """
    shown: dict[str, HloInstruction] = {}
    for instruction in module.entry.instructions.values():
        followed = instruction.opcode == "parameter" and (data is None or int(instruction.literal) in data)
        if followed or any(name in shown for name in instruction.operands):
            shown[instruction.name] = instruction
    if module.entry.root.opcode == "tuple":
        shown.pop(module.entry.root.name, None)
    if not shown:
        raise XlaError("no result depends on these parameters", where=module.name, got=data)
    return [Step(line, tuple(name for name in line.operands if name in shown)) for line in shown.values()]


def draw(view: View) -> Drawing:
    """Draw a function from top to bottom, with a box for each instruction of its optimised entry computation.

    The box of a fusion or a call lists the opcodes inside, without broadcasts and constants. Weights, that is leaves of
    arguments that are trees, are lines in the box of the instruction that reads them, with the operations on them.
    """
    return draw_scene(scene_of(view.module("optimized"), view.data), name=view.name)


def scene_of(module: Module, data: tuple[int, ...] | None = None) -> Scene:
    """Return the boxes and wires of a drawing; arguments as for `steps`."""
    shown = steps(module, data)
    box_of = {step.instruction.name: i for i, step in enumerate(shown)}
    boxes = [_box(module, step) for step in shown]
    wires = [Wire(box_of[s], 0, i, slot) for i, step in enumerate(shown) for slot, s in enumerate(step.sources)]
    results = [name for name in outputs(module) if name in box_of]
    for i, name in enumerate(results):
        wires.append(Wire(box_of[name], 0, len(boxes), 0))
        boxes.append(end_box("output", "result" if len(results) == 1 else f"result {i}"))
    return Scene(module.name, boxes, wires, STYLES)


def _box(module: Module, step: Step) -> Box:
    instruction, port = step.instruction, _port(step.instruction)
    if instruction.opcode == "parameter":
        return end_box("input", instruction.name, port, arrows=0)
    details = [*_details(module, step)]
    if len(details) > _MAX_DETAILS:
        details[_MAX_DETAILS - 1 :] = [f"… and {len(details) - _MAX_DETAILS + 1} lines more"]
    title = _title(module, instruction)
    lines = heading(title, instruction.name, details, 44)
    codes = _listed(opcodes(module, instruction)) if instruction.opcode == "fusion" else []
    summary = f"{title} of {' '.join(codes)}" if len(codes) > 1 else ""
    family, name = FAMILIES[_family(module, instruction)], instruction.name
    return Box(("node", name), family, lines, (port,), [""] * len(step.sources), "", summary)


def _port(instruction: HloInstruction) -> Port:
    real = all(array.element_type.startswith(("f", "bf", "c")) for array in instruction.arrays)
    label = tuple(Line(fit_text(str(array), 40), 10.0) for array in instruction.arrays[:3])
    return Port(label, FLOAT if real else INTEGER)


def _title(module: Module, instruction: HloInstruction) -> str:
    if instruction.opcode == "fusion":
        kind = _FUSIONS.get(instruction.attribute("kind") or "", "one loop")
        inner = opcodes(module, instruction)
        return f"{inner[0]}, {kind}" if len(inner) == 1 else f"fusion, {kind}"
    return callee(instruction) if instruction.opcode == "call" else instruction.opcode


def _details(module: Module, step: Step) -> Iterator[str]:
    """Yield the lines of a box: its opcodes, its window, and the weights that it reads."""
    instruction = step.instruction
    if instruction.calls and len(opcodes(module, instruction)) > 1:
        yield from _wrapped("", _listed(opcodes(module, instruction)))
    yield from _window(module, instruction)
    others = [module.entry.instructions[name] for name in instruction.operands if name not in step.sources]
    for (operand, history), count in Counter(_operand(module, other) for other in others).items():
        yield f"with {operand}" if count == 1 else f"with {count} of {operand}"
        yield from _wrapped("  made by ", _listed(history))


def _window(module: Module, instruction: HloInstruction) -> list[str]:
    """Return the window of a product or pooling, if the box has exactly one."""
    inner = [line for name in instruction.calls for line in module.computations[name].instructions.values()]
    windows = [line.attribute("window") for line in inner or [instruction] if line.opcode in (*PRODUCTS, *POOLINGS)]
    text = windows[0].strip("{}").replace("=", " ") if len(windows) == 1 and windows[0] else ""
    return textwrap.wrap(text, _WIDTH, break_long_words=False)


def _operand(module: Module, value: HloInstruction) -> tuple[str, tuple[str, ...]]:
    """Return the description of a weight or a constant, and the opcodes that have prepared it."""
    if value.opcode == "constant" and not value.arrays[0].dims:
        return value.literal or "a constant", ()
    history: list[str] = []
    pending = [value]
    while pending:
        instruction = pending.pop(0)
        history += [code for code in reversed(opcodes(module, instruction)) if code not in ("parameter", "constant")]
        pending += [module.entry.instructions[name] for name in instruction.operands]
    return ", ".join(map(str, value.arrays)), tuple(reversed(history))


def _listed(codes: tuple[str, ...]) -> list[str]:
    """Return opcodes in order, without broadcasts if there are others; of many, each one once with its count."""
    codes = tuple(code for code in codes if not code.startswith("broadcast")) or codes
    if len(codes) <= _MAX_LISTED:
        return list(codes)
    return [f"{code}×{count}" for code, count in Counter(codes).most_common()]


def _wrapped(head: str, words: list[str]) -> list[str]:
    return textwrap.wrap(head + ", ".join(words), _WIDTH, subsequent_indent="  ") if words else []


def _family(module: Module, instruction: HloInstruction) -> str:
    """Return the family of a box: that of a product or a pooling if it has one."""
    families = {"product": set(PRODUCTS), "pooling": set(POOLINGS), **_FAMILIES}
    codes = {*opcodes(module, instruction)}
    return next((family for family, members in families.items() if members & codes), "other")
