"""Drawings of a tape with the gradients that flow back through it.

>>> tape = Tape()
>>> loss = cross_entropy(lenet(ad, tape.tree(params), tape.value(images, "images")), labels)
>>> gradient_graph(tape)                       # displayed by a notebook
>>> gradient_graph(tape).save("lenet.svg")     # or .png
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

import numpy as np

from mlhood.compiler.hir.describe import FLOAT, STYLES
from mlhood.errors import AutodiffError
from mlhood.graph_drawing import Box, Drawing, Line, Port, Scene, Wire, draw_mirrored
from mlhood.jaxlab.autodiff.rules import RULES, Rule
from mlhood.jaxlab.autodiff.tape import Entry, Tape, backward
from mlhood.jaxlab.tracing.program_figures import end_box, heading, operation_box, shape_port, shape_text

_MAX_OPERATIONS = 150
_WEIGHTED = {"conv2d", "dense", "batch_norm", "cross_entropy"}  # all inputs but the first are lines in the box


def gradient_graph(tape: Tape, rules: Mapping[str, Rule] = RULES) -> Drawing:
    """Draw a tape from top to bottom, and beside it the flow of the gradients from bottom to top.

    To the right of each operation, at the same height, is the rule that maps the gradient with respect to its result to
    those with respect to its inputs; gradients of weights end in the rule's box. A value that several operations read
    is copied on the left, and its gradients are added up on the right. Arrows are labelled with the value's shape, or
    with the norm of its gradient.

    Args:
        tape: A tape that ends in a scalar. Operations that it does not depend on are left out.
        rules: As for `backward`.

    Raises:
        AutodiffError: As for `backward`, or there are too many operations.
    """
    scenes = GradientScenes(tape, backward(tape, rules))
    if len(scenes.entries) > _MAX_OPERATIONS:
        raise AutodiffError(
            "the tape is too long to be drawn",
            expected=f"at most {_MAX_OPERATIONS} operations",
            got=len(scenes.entries),
            todo="draw a part: one block, or one layer",
        )
    halves, titles = (scenes.forward, scenes.backward), ("forward, downwards", "backward, upwards")
    return draw_mirrored(halves, titles, name="a tape and its gradients")


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
        self.forward = Scene("forward", [], [], STYLES)
        self.backward = Scene("backward", [], [], STYLES)
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
        attributes = [f"{key} {value}" for key, value in entry.attributes.items() if key != "eps" and value is not None]
        details = [", ".join(attributes)] if attributes else []
        details += [f"with {self._description(number)}" for number in weights]
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
            total = operation_box("add", name, lines[1], Port((), FLOAT), 1)
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
            box.arrow_labels = [""] * len(sources)
            scene.wires += [Wire(source, 0, len(scene.boxes), arrow) for arrow, source in enumerate(sources)]
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
        return shape_port(self.tape.values[number].shape), Port((label,), FLOAT)


def _live_entries(tape: Tape, last: int) -> list[Entry]:
    needed, entries = {last}, []
    for entry in reversed(tape.entries):
        if entry.output in needed:
            needed.update(entry.inputs)
            entries.append(entry)
    return entries[::-1]
