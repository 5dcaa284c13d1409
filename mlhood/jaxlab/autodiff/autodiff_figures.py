"""Drawings of a tape with the gradients that flow back through it.

>>> tape = Tape()
>>> loss = cross_entropy(lenet(ad, tape.tree(params), tape.value(images, "images")), labels)
>>> gradient_graph(tape)                       # displayed by a notebook
>>> gradient_graph(tape, path="lenet.svg")     # or .png
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from pathlib import Path as File

import numpy as np
from matplotlib.figure import Figure
from matplotlib.patches import PathPatch
from matplotlib.path import Path

from mlhood.errors import AutodiffError
from mlhood.graph_drawing.arrangement import Arrangement
from mlhood.graph_drawing.drawing import Drawing
from mlhood.graph_drawing.layers import layered, ranks
from mlhood.graph_drawing.layout import BETWEEN
from mlhood.graph_drawing.placement import PlacedText, Placement, Route
from mlhood.graph_drawing.render import INKS, figure_of, line_path
from mlhood.graph_drawing.routing import set_out
from mlhood.graph_drawing.scene import REAL, Box, Port, Scene, Wire
from mlhood.graph_drawing.text_metrics import Line
from mlhood.jaxlab.autodiff.rules import RULES, Rule
from mlhood.jaxlab.autodiff.tape import Entry, Tape, backward
from mlhood.jaxlab.tracing.boxes import end_box, heading, operation_box, shape_port, shape_text

_TITLE = 34.0
_MAX_OPERATIONS = 150
_WEIGHTED = {"conv2d", "dense", "batch_norm", "cross_entropy"}  # all inputs but the first are lines in the box
_ARROW = 7.5


def gradient_graph(
    tape: Tape, rules: Mapping[str, Rule] = RULES, path: str | File | None = None, *, key: bool = True
) -> Drawing:
    """Draw a tape from top to bottom, and beside it the flow of the gradients from bottom to top.

    To the right of each operation, at the same height, is the rule that maps the gradient with respect to its result to
    those with respect to its inputs; gradients of weights end in the rule's box. A value that several operations read
    is copied on the left, and its gradients are added up on the right. Arrows are labelled with the value's shape, or
    with the norm of its gradient.

    Args:
        tape: A tape that ends in a scalar. Operations that it does not depend on are left out.
        rules: As for `backward`.
        path: File to save the drawing to, .svg or .png; None for no file.
        key: Whether to explain colours and outlines below.

    Raises:
        AutodiffError: As for `backward`, or there are too many operations.
        CompilerError: The file name has another suffix.
        OutputError: The file cannot be written.
    """
    scenes = GradientScenes(tape, backward(tape, rules))
    if len(scenes.entries) > _MAX_OPERATIONS:
        raise AutodiffError(
            "the tape is too long to be drawn",
            expected=f"at most {_MAX_OPERATIONS} operations",
            got=len(scenes.entries),
            todo="draw a part: one block, or one layer",
        )
    placement, back = side_by_side(scenes.forward, scenes.backward)
    drawing = Drawing(placement, lambda: _figure(placement, back, key), "a tape and its gradients")
    if path is not None:
        drawing.save(path)
    return drawing


# -- the two scenes


class GradientScenes:
    """Both halves of the drawing: `forward` and `backward`, two scenes with corresponding boxes and equal wires.

    Args:
        tape: The recorded function.
        gradients: What `backward` returns for it.
    """

    def __init__(self, tape: Tape, gradients: Mapping[int, np.ndarray]) -> None:
        self.tape = tape
        self.gradients = gradients
        self.last = len(tape.values) - 1
        self.entries = _live_entries(tape, self.last)
        self.computed = {entry.output for entry in self.entries}
        self.uses = Counter(number for entry in self.entries for number in entry.inputs)
        self.box_of: dict[int, int] = {}  # the box that a value's wires leave, after it was copied
        self.forward = Scene("forward", [], [])
        self.backward = Scene("backward", [], [])
        for entry in self.entries:
            self._add_entry(entry)
        self._add_result()

    def _add_entry(self, entry: Entry) -> None:
        inlined = [number for i, number in enumerate(entry.inputs) if self._is_inlined(entry, i)]
        sources = [number for number in entry.inputs if number not in inlined]
        for number in sources:
            if number not in self.box_of:
                self._add_leaf(number)
        name = f"value {entry.output}"
        weights = [number for number in inlined if not self._is_literal(number)]
        details = [*_attributes(entry), *(f"with {self._description(number)}" for number in weights)]
        if len(weights) < len(inlined):  # with a literal among the operands, show all of them
            details.append(" ".join([entry.op, *map(self._operand, entry.inputs)]))
        gradients = [f"∂ {self._description(number)}" for number in weights if number in self.gradients]
        lines = heading(entry.op, name, details), heading(f"rule of {entry.op}", f"of {name}", gradients)
        ports = self._ports(entry.output)
        boxes = [operation_box(entry.op, name, *half, len(sources)) for half in zip(lines, ports, strict=True)]
        self._add_value(entry.output, boxes, [self.box_of[number] for number in sources])

    def _is_inlined(self, entry: Entry, position: int) -> bool:
        """Tell whether an input is a line in the box: a weight or a literal that nothing else reads."""
        number = entry.inputs[position]
        if number in self.computed or self.uses[number] > 1:
            return False
        return self._is_literal(number) or (position > 0 and entry.op in _WEIGHTED)

    def _is_literal(self, number: int) -> bool:
        return self.tape.values[number].size == 1 and number not in self.tape.names and number not in self.computed

    def _add_leaf(self, number: int) -> None:
        name, (shape, norm) = self._name(number), self._ports(number)
        self._add_value(number, [end_box("input", name, shape), end_box("gradient", f"∂ {name}", norm)], [])

    def _add_value(self, number: int, boxes: list[Box], sources: list[int]) -> None:
        """Add the boxes of a value, and those that copy it and sum its gradients if several operations read it."""
        if number not in self.gradients:
            boxes[1].mark = "same"  # pale
        self._add_boxes(boxes, sources)
        count = self.uses[number]
        if count > 1:
            name = f"value {number}"
            lines = heading("copy", f"{name}, read {count} times"), heading("sum", f"{count} gradients")
            copy = operation_box("copy", name, lines[0], self._ports(number)[0], 1)
            # the arriving wires have different gradients; the norm of their sum is shown above
            total = operation_box("add", name, lines[1], Port((), REAL), 1)
            total.mark = boxes[1].mark
            self._add_boxes([copy, total], [len(self.forward.boxes) - 1])
        self.box_of[number] = len(self.forward.boxes) - 1

    def _add_result(self) -> None:
        value = self.tape.values[self.last]
        if self.last not in self.box_of:
            self._add_leaf(self.last)
        name = self.tape.names.get(self.last, "result")
        self._add_boxes([end_box(f"{value.item():.4g}", name), end_box("1", f"∂ {name}")], [self.box_of[self.last]])

    def _add_boxes(self, boxes: list[Box], sources: list[int]) -> None:
        for scene, box in zip((self.forward, self.backward), boxes, strict=True):
            box.slots = [""] * len(sources)
            scene.wires += [Wire(source, 0, len(scene.boxes), slot) for slot, source in enumerate(sources)]
            scene.boxes.append(box)

    def _name(self, number: int) -> str:
        return self.tape.names.get(number, f"value {number}")

    def _description(self, number: int) -> str:
        return f"{self._name(number)} {shape_text(self.tape.values[number].shape)}"

    def _operand(self, number: int) -> str:
        if self._is_literal(number):
            return f"{self.tape.values[number].item():g}"
        return self.tape.names.get(number, f"v{number}")

    def _ports(self, number: int) -> tuple[Port, Port]:
        """Return the ports of a value and of its gradient, labelled with the shape and with the norm."""
        label = Line("no gradient", 10.0, faint=True)
        if number in self.gradients:
            label = Line(f"‖g‖ = {np.linalg.norm(self.gradients[number]):.2g}", 10.0)
        return shape_port(self.tape.values[number].shape), Port((label,), REAL)


def _live_entries(tape: Tape, last: int) -> list[Entry]:
    needed, entries = {last}, []
    for entry in reversed(tape.entries):
        if entry.output in needed:
            needed.update(entry.inputs)
            entries.append(entry)
    return entries[::-1]


def _attributes(entry: Entry) -> list[str]:
    shown = [f"{name} {value}" for name, value in entry.attributes.items() if name != "eps" and value is not None]
    return [", ".join(shown)] if shown else []


# -- layout and rendering


def side_by_side(left: Scene, right: Scene) -> tuple[Placement, list[Route]]:
    """Place two scenes with equal wires, corresponding boxes at the same height; return the right one's routes apart.

    Its routes still lead downwards.
    """
    count = len(left.boxes)
    layers = layered(count, left.wires, ranks(count, [(wire.source, wire.target) for wire in left.wires]))
    arrangements = [Arrangement(scene.boxes, scene.wires, layers, 1) for scene in (left, right)]
    levels = [a.joined(b) for a, b in zip(arrangements[0].levels, arrangements[1].levels, strict=True)]
    halves = [set_out(arrangement, levels) for arrangement in arrangements]
    placement = Placement()
    titles = [Line(text, 13.0, bold=True) for text in ("forward, downwards", "backward, upwards")]
    middle = max(halves[0].width, titles[0].width) + 2 * BETWEEN
    for half, title, x in zip(halves, titles, (0.0, middle), strict=True):
        placement.texts.append(PlacedText((title,), x, 0.0))
        placement.add(half, x, _TITLE)
        placement.width = max(placement.width, x + title.width)
    placement.texts = [text for text in placement.texts if text.lines]
    forward = len(halves[0].routes)
    back = [route for route in placement.routes[forward:] if route.target is not None]
    del placement.routes[forward:]
    return placement, back


def _figure(placement: Placement, back: list[Route], key: bool) -> Figure:
    figure = figure_of(placement, key=key)
    axes = figure.axes[0]
    ink = INKS[0]
    for route in back:
        x, y = route.points[0]  # the gradient arrives where the value leaves its box
        tip = Path([(x, y), (x - 3.6, y + _ARROW), (x + 3.6, y + _ARROW), (x, y)], closed=True)
        axes.add_patch(PathPatch(tip, facecolor=ink, edgecolor="none", zorder=3))
        line = line_path([(x, y + 5.0), *route.points[1:]])
        style = {"capstyle": "butt", "joinstyle": "round", "zorder": 1, "snap": False}
        axes.add_patch(PathPatch(line, fill=False, edgecolor=ink, linewidth=1.1, **style))
    return figure
