"""Drawings of StableHLO and HLO, by the machinery that draws the compiler's graphs: no program besides Python.

draw(view(logits, params, x))                  # optimised HLO; shows itself in a notebook
draw(view(logits, params, x), "stablehlo", path="resnet.svg")
"""

from __future__ import annotations

import textwrap
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

from mlhood.errors import XlaError
from mlhood.graph_drawing.drawing import Drawing
from mlhood.graph_drawing.layout import place
from mlhood.graph_drawing.render import figure_of
from mlhood.graph_drawing.scene import NUMBERS, REAL, Box, Port, Scene, Wire
from mlhood.graph_drawing.text_metrics import Line, said
from mlhood.jaxlab.xla.hlo import Instruction, Module
from mlhood.jaxlab.xla.steps import POOLINGS, PRODUCTS, Step, callee, opcodes, outputs, steps
from mlhood.jaxlab.xla.views import Stage, View

_UNFOLDED = 60  # steps from which chains are folded by themselves
_WIDTH = 32  # characters of a line of opcodes
_DETAILS = 8  # lines below the name
_IN_ORDER = 16  # opcodes that are told one by one
_FUSIONS = {"kOutput": "into its product", "kCustom": "by a library"}
_FAMILIES = {
    "activation": {"maximum", "minimum", "clamp", "exponential", "tanh", "logistic", "log", "erf"},
    "arithmetic": {"add", "subtract", "multiply", "divide", "negate", "abs", "sqrt", "rsqrt", "power"},
    "shape": {
        "broadcast",
        "broadcast_in_dim",
        "reshape",
        "transpose",
        "copy",
        "bitcast",
        "slice",
        "pad",
        "concatenate",
    },
}


def draw(
    view: View,
    stage: Stage = "optimized",
    path: str | Path | None = None,
    *,
    fold: bool | None = None,
    columns: int | None = None,
    key: bool = True,
    limit: int = 500,
) -> Drawing:
    """Draw what a function computes from top to bottom, a box for each instruction of the main computation.

    In the box of a fusion, or of a call, stand the opcodes inside, broadcasts and constants left out. Weights, that is
    leaves of arguments that are trees, are lines in the box of what reads them, with what is done to them before.

    Args:
        view: The function.
        stage: "stablehlo", "hlo" or "optimized".
        path: Where to save the drawing, .svg or .png; nowhere if left out.
        fold: Whether a box takes in the chain that follows it, up to the next product, pooling or branch; left out,
            only where there are many.
        columns: Into how many columns it is cut; by its height and width if left out.
        key: Whether to say below what colours, outlines and lines mean.
        limit: The most boxes to draw.

    Raises:
        XlaError: There is no such stage, or too much to draw.
        CompilerError: The file's name has another ending.
        OutputError: The file cannot be written.
    """
    scene = describe(view.module(stage), view.data, fold=fold)
    if len(scene.boxes) > limit:
        raise XlaError(
            "there is too much to draw", where=view.name, expected=f"at most {limit} boxes",
            got=f"{len(scene.boxes)} boxes", todo="draw(..., fold=True), or print the text: view.optimized",
        )  # fmt: skip
    placement = place(scene, columns)
    drawing = Drawing(placement, lambda: figure_of(placement, key=key), f"{view.name}, {stage}")
    if path is not None:
        drawing.save(path)
    return drawing


def describe(module: Module, data: tuple[int, ...] | None = None, *, fold: bool | None = None) -> Scene:
    """Return what a drawing says; arguments as `steps.steps` and `draw`."""
    shown = steps(module, data, fold=bool(fold))
    if fold is None and len(shown) > _UNFOLDED:
        shown = steps(module, data, fold=True)
    numbers = {step.last.name: number for number, step in enumerate(shown)}
    boxes = [_box(module, step) for step in shown]
    wires = [
        Wire(numbers[source], 0, number, slot)
        for number, step in enumerate(shown)
        for slot, source in enumerate(step.sources)
    ]
    results = [name for name in outputs(module) if name in numbers]
    for i, name in enumerate(results):
        wires.append(Wire(numbers[name], 0, len(boxes), 0))
        title = "result" if len(results) == 1 else f"result {i}"
        boxes.append(Box(("output", title), "end", _end(title, "output"), slots=[""]))
    return Scene(module.name, boxes, wires)


def _box(module: Module, step: Step) -> Box:
    ports = (_port(step.last),)
    if step.first.opcode == "parameter":
        return Box(("input", step.first.name), "end", _end(step.first.name, "input"), ports)
    lines = [Line(said(_heading(module, step.first)), 13.0, bold=True), Line(said(step.first.name), 9.5, faint=True)]
    details = [*_details(module, step)]
    if len(details) > _DETAILS:
        details[_DETAILS - 1 :] = [f"… and {len(details) - _DETAILS + 1} lines more"]
    lines += [Line(said(text, 44)) for text in details]
    return Box(("node", step.first.name), _family(module, step), tuple(lines), ports, [""] * len(step.sources))


def _end(name: str, what: str) -> tuple[Line, ...]:
    return Line(said(name), 12.0, bold=True), Line(what, 9.5, faint=True)


def _port(one: Instruction) -> Port:
    kind = REAL if all(array.element_type.startswith(("f", "bf", "c")) for array in one.arrays) else NUMBERS
    return Port(tuple(Line(said(str(array), 40), 10.0) for array in one.arrays[:3]), kind)


def _heading(module: Module, one: Instruction) -> str:
    if one.opcode == "fusion":
        how = _FUSIONS.get(one.attribute("kind") or "", "one loop")
        codes = opcodes(module, one)
        return f"{codes[0]}, {how}" if len(codes) == 1 else f"fusion, {how}"
    return callee(one) if one.opcode == "call" else one.opcode


def _details(module: Module, step: Step) -> Iterator[str]:
    """Give the lines of a box: what is in it, its window, the weights that it reads, and what follows in the chain."""
    first = step.first
    if first.calls and len(opcodes(module, first)) > 1:
        yield from _wrapped("", _told(opcodes(module, first)))
    yield from _window(module, first)
    read = Counter(
        _prepared(module, module.entry.instructions[name]) for name in first.operands if name not in step.sources
    )
    for (what, made), count in read.items():
        yield f"with {what}" if count == 1 else f"with {count} of {what}"
        yield from _wrapped("  made by ", _told(made))
    yield from _following(module, step)


def _following(module: Module, step: Step) -> Iterator[str]:
    """Give the rest of the chain: a fusion begins a line of its own."""
    plain: list[str] = []
    for one in step.chained:
        if one.opcode == "fusion":
            yield from _wrapped("then ", plain)
            yield from _wrapped("then fused: ", _told(opcodes(module, one)))
            plain = []
        else:
            plain.append(callee(one) if one.opcode == "call" else one.opcode)
    yield from _wrapped("then ", plain)


def _window(module: Module, one: Instruction) -> list[str]:
    """Return the window of a product or pooling, if there is but one in the box."""
    inner = [line for name in one.calls for line in module.computations[name].instructions.values()]
    found = [line.attribute("window") for line in inner or [one] if line.opcode in (*PRODUCTS, *POOLINGS)]
    words = found[0].strip("{}").replace("=", " ") if len(found) == 1 and found[0] else ""
    return textwrap.wrap(words, _WIDTH, break_long_words=False)


def _prepared(module: Module, value: Instruction) -> tuple[str, tuple[str, ...]]:
    """Return what a step reads besides its data, a weight or a constant, and by what opcodes it was made of one."""
    if value.opcode == "constant" and not value.arrays[0].dims:
        return value.literal or "a constant", ()
    done: list[str] = []
    waiting = [value]
    while waiting:
        one = waiting.pop(0)
        done += [code for code in reversed(opcodes(module, one)) if code not in ("parameter", "constant")]
        waiting += [module.entry.instructions[name] for name in one.operands]
    return ", ".join(map(str, value.arrays)), tuple(reversed(done))


def _told(codes: tuple[str, ...]) -> list[str]:
    """Return opcodes in order, without broadcasts where there is more; of many, how often each comes."""
    said_first = [code for code in codes if not code.startswith("broadcast")] or list(codes)
    if len(said_first) <= _IN_ORDER:
        return said_first
    return [f"{code}×{count}" for code, count in Counter(said_first).most_common()]


def _wrapped(head: str, words: list[str]) -> list[str]:
    return textwrap.wrap(head + ", ".join(words), _WIDTH, subsequent_indent="  ") if words else []


def _family(module: Module, step: Step) -> str:
    """Return the family of the most telling opcode in a box."""
    codes = [code for one in (step.first, *step.chained) for code in opcodes(module, one)]
    if any(code in PRODUCTS for code in codes):
        return "product"
    if any(code in POOLINGS for code in codes):
        return "pooling"
    found = (family for family, known in _FAMILIES.items() if known & set(codes))
    return next(found, "other")
