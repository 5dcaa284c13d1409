"""Pictures of what was recorded: a tape with the gradients that flow back, and a traced program.

Both are drawn by the machinery that draws the compiler's graphs: no program besides Python.

>>> tape = Tape()
>>> loss = cross_entropy(lenet(ad, tape.tree(params), tape.value(images, "images")), labels)
>>> gradient_graph(tape)                       # shows itself in a notebook
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
from mlhood.graph_drawing.layout import BETWEEN, place
from mlhood.graph_drawing.placement import PlacedText, Placement, Route
from mlhood.graph_drawing.render import INKS, figure_of, line_path
from mlhood.graph_drawing.routing import set_out
from mlhood.graph_drawing.scene import REAL, Box, Port, Scene, Wire
from mlhood.graph_drawing.text_metrics import Line, said
from mlhood.jaxlab.autodiff.rules import RULES, Rule
from mlhood.jaxlab.autodiff.tape import Entry, Tape, backward
from mlhood.jaxlab.tracing.tracer import Equation, Operand, Program, Variable

_TITLE = 34.0
_LIMIT = 150  # operations: a drawing of more is too long to be looked at
_WEIGHTED = {"conv2d", "dense", "batch_norm", "cross_entropy"}  # all but the first input are written in the box
_FAMILIES = {
    "product": {"conv2d", "dense", "matmul"},
    "normalization": {"batch_norm"},
    "activation": {"relu", "tanh", "sigmoid", "softmax"},
    "pooling": {"max_pool", "global_average_pool", "sum", "mean", "cross_entropy"},
    "shape": {"reshape", "transpose", "copy"},
}
_ARROW = 7.5


def gradient_graph(
    tape: Tape, rules: Mapping[str, Rule] = RULES, path: str | File | None = None, *, key: bool = True
) -> Drawing:
    """Draw what a tape recorded from top to bottom, and beside it what flows back, from bottom to top.

    Each operation has at its right, at its height, the rule that turns the gradient by its result into gradients by
    its inputs; those by weights end in its box. A value that several operations read is copied on the left, and on the
    right their gradients are added up. Beside an arrow stands the value's shape, or its gradient's length.

    Args:
        tape: What was done; it ends in a value of one number. What does not lead there is left out.
        rules: As of `backward`.
        path: Where to save the drawing, .svg or .png; nowhere if left out.
        key: Whether to say below what colours and outlines mean.

    Raises:
        AutodiffError: As `backward`; or there is too much to draw.
        CompilerError: The file's name has another ending.
        OutputError: The file cannot be written.
    """
    gradients = backward(tape, rules)
    twins = Twins(tape, gradients)
    _check_limit(len(twins.shown))
    whole, back = beside(twins.forward, twins.backward)
    drawing = Drawing(whole, lambda: _figure(whole, back, key), "a tape and its gradients")
    if path is not None:
        drawing.save(path)
    return drawing


def program_graph(program: Program, path: str | File | None = None, *, key: bool = True) -> Drawing:
    """Draw a traced program from top to bottom; arguments and errors as of `gradient_graph`."""
    _check_limit(len(program.equations))
    placement = place(_program(program))
    drawing = Drawing(placement, lambda: figure_of(placement, key=key), "a traced program")
    if path is not None:
        drawing.save(path)
    return drawing


def _check_limit(count: int) -> None:
    if count > _LIMIT:
        raise AutodiffError(
            "there is too much to draw", expected=f"at most {_LIMIT} operations", got=f"{count} operations",
            todo="draw a part: one block, or one layer",
        )  # fmt: skip


# -- a program


def _program(program: Program) -> Scene:
    names = program.names()
    scene = Scene("program", [], [])
    made = {one.output for one in program.equations}
    places: dict[Operand, int] = {}
    for one, name in names.items():
        if one not in made:
            places[one] = len(scene.boxes)
            scene.boxes.append(_end(name, "input" if one in program.inputs else "never made", one.shape))
    for equation in program.equations:
        name = names[equation.output]
        read = [one for one in equation.inputs if isinstance(one, Variable)]
        if any(one not in places for one in read):
            raise AutodiffError("a variable is read before it is made", where=f"{equation.op}, which makes {name}")
        sources = [places[one] for one in read]
        told = [] if len(sources) == len(equation.inputs) else [_equation(equation, names)]
        lines = _heading(equation.op, name, told)
        places[equation.output] = number = len(scene.boxes)
        scene.boxes.append(_box(equation.op, name, lines, _port(equation.output.shape), len(sources)))
        scene.wires += [Wire(source, 0, number, slot) for slot, source in enumerate(sources)]
    for i, one in enumerate(program.outputs):
        name = "result" if len(program.outputs) == 1 else f"result {i}"
        if isinstance(one, Variable):
            scene.wires.append(Wire(places[one], 0, len(scene.boxes), 0))
        scene.boxes.append(_end(name, "output" if isinstance(one, Variable) else repr(one)))
    return scene


def _equation(equation: Equation, names: Mapping[Variable, str]) -> str:
    """Return an equation with a number in it as a line: which operand the number is."""
    operands = (names[one] if isinstance(one, Variable) else repr(one) for one in equation.inputs)
    return " ".join([equation.op, *operands])


# -- a tape: two scenes of one form


class Twins:
    """What both halves of the picture say: `forward` and `backward`, two scenes alike box for box and wire for wire.

    Args:
        tape: What was done.
        gradients: What `backward` gives of it.
    """

    def __init__(self, tape: Tape, gradients: Mapping[int, np.ndarray]) -> None:
        self.tape = tape
        self.gradients = gradients
        self.last = len(tape.values) - 1
        self.shown = _leading_to(tape, self.last)
        self.made = {one.output for one in self.shown}
        self.uses = Counter(number for one in self.shown for number in one.inputs)
        self.places: dict[int, int] = {}  # the box that a value leaves, after it was copied
        self.forward = Scene("forward", [], [])
        self.backward = Scene("backward", [], [])
        for entry in self.shown:
            self._entry(entry)
        self._result()

    def _entry(self, entry: Entry) -> None:
        inner = [number for i, number in enumerate(entry.inputs) if self._is_inner(entry, i)]
        sources = [number for number in entry.inputs if number not in inner]
        for number in sources:
            if number not in self.places:
                self._leaf(number)
        name = f"value {entry.output}"
        weights = [number for number in inner if not self._is_lone(number)]
        ahead = [*_attributes(entry), *(f"with {self._said(number)}" for number in weights)]
        if len(weights) < len(inner):  # which of the operands is the number
            ahead.append(" ".join([entry.op, *map(self._operand, entry.inputs)]))
        back = [f"∂ {self._said(number)}" for number in weights if self._reached(number)]
        boxes = (
            _box(entry.op, name, _heading(entry.op, name, ahead), self._shape(entry.output), len(sources)),
            _box(entry.op, name, _heading(f"rule of {entry.op}", f"of {name}", back), self._length(entry.output),
                 len(sources)),
        )  # fmt: skip
        self._add(entry.output, boxes, [self.places[number] for number in sources])

    def _is_inner(self, entry: Entry, position: int) -> bool:
        """Tell whether an input is written in the box: a weight, or a number, that nothing else reads."""
        number = entry.inputs[position]
        if number in self.made or self.uses[number] > 1:
            return False
        return self._is_lone(number) or (position > 0 and entry.op in _WEIGHTED)

    def _is_lone(self, number: int) -> bool:
        return self.tape.values[number].size == 1 and number not in self.tape.names and number not in self.made

    def _leaf(self, number: int) -> None:
        boxes = _end(self._name(number), "input"), _end(f"∂ {self._name(number)}", "gradient")
        for box, port in zip(boxes, (self._shape(number), self._length(number)), strict=True):
            box.ports = (port,)
        self._add(number, boxes, [])

    def _add(self, number: int, boxes: tuple[Box, Box], sources: list[int]) -> None:
        """Add a pair of boxes that make a value, and, where several read it, a pair that copies it and adds up."""
        if not self._reached(number):
            boxes[1].mark = "same"  # pale
        self._put(boxes, sources)
        count = self.uses[number]
        if count > 1:
            name = f"value {number}"
            copy = _box("copy", name, _heading("copy", f"{name}, read {count} times"), self._shape(number), 1)
            # each of the wires that arrive carries its own gradient, so only that of their sum is told, above
            total = _box("add", name, _heading("sum", f"{count} gradients"), Port((), REAL), 1)
            total.mark = boxes[1].mark
            self._put((copy, total), [len(self.forward.boxes) - 1])
        self.places[number] = len(self.forward.boxes) - 1

    def _result(self) -> None:
        value = self.tape.values[self.last]
        if self.last not in self.places:
            self._leaf(self.last)
        name = self.tape.names.get(self.last, "result")
        boxes = _end(name, f"{value.item():.4g}"), _end(f"∂ {name}", "1")
        self._put((boxes[0], boxes[1]), [self.places[self.last]])

    def _put(self, boxes: tuple[Box, Box], sources: list[int]) -> None:
        for scene, box in zip((self.forward, self.backward), boxes, strict=True):
            box.slots = [""] * len(sources)
            scene.wires += [Wire(source, 0, len(scene.boxes), slot) for slot, source in enumerate(sources)]
            scene.boxes.append(box)

    def _reached(self, number: int) -> bool:
        return number in self.gradients

    def _name(self, number: int) -> str:
        return self.tape.names.get(number, f"value {number}")

    def _said(self, number: int) -> str:
        return f"{self._name(number)} {_dimensions(self.tape.values[number].shape)}"

    def _operand(self, number: int) -> str:
        if self._is_lone(number):
            return f"{self.tape.values[number].item():g}"
        return self.tape.names.get(number, f"v{number}")

    def _shape(self, number: int) -> Port:
        return _port(self.tape.values[number].shape)

    def _length(self, number: int) -> Port:
        if not self._reached(number):
            return Port((Line("no gradient", 10.0, faint=True),), REAL)
        return Port((Line(f"‖g‖ = {np.linalg.norm(self.gradients[number]):.2g}", 10.0),), REAL)


def _leading_to(tape: Tape, last: int) -> list[Entry]:
    needed, found = {last}, []
    for entry in reversed(tape.entries):
        if entry.output in needed:
            needed.update(entry.inputs)
            found.append(entry)
    return found[::-1]


# -- boxes


def _end(name: str, what: str, shape: tuple[int, ...] | None = None) -> Box:
    lines = Line(said(name), 12.0, bold=True), Line(said(what), 9.5, faint=True)
    return Box((what, name), "end", lines, () if shape is None else (_port(shape),), [""])


def _box(op: str, name: str, lines: list[Line], port: Port, arrows: int) -> Box:
    family = next((family for family, known in _FAMILIES.items() if op in known), "arithmetic")
    return Box(("node", f"{op}, {name}"), family, tuple(lines), (port,), [""] * arrows)


def _heading(title: str, name: str, details: list[str] | None = None) -> list[Line]:
    lines = [Line(said(title), 13.0, bold=True), Line(said(name), 9.5, faint=True)]
    return lines + [Line(said(text, 40)) for text in details or []]


def _port(shape: tuple[int, ...]) -> Port:
    return Port((Line(_dimensions(shape), 10.0),), REAL)


def _dimensions(shape: tuple[int, ...]) -> str:
    return f"[{', '.join(map(str, shape))}]"


def _attributes(entry: Entry) -> list[str]:
    told = [f"{name} {value}" for name, value in entry.attributes.items() if name != "eps" and value is not None]
    return [", ".join(told)] if told else []


# -- places, and paint


def beside(first: Scene, second: Scene) -> tuple[Placement, list[Route]]:
    """Return two scenes alike with their boxes at the same heights, and apart the second one's wires, still downwards.

    Args:
        first: The left half.
        second: The right half, with the same wires.
    """
    count = len(first.boxes)
    layers = layered(count, first.wires, ranks(count, [(wire.source, wire.target) for wire in first.wires]))
    plans = [Arrangement(scene.boxes, scene.wires, layers, 1) for scene in (first, second)]
    levels = [one.joined(other) for one, other in zip(plans[0].levels, plans[1].levels, strict=True)]
    left, right = (set_out(plan, levels) for plan in plans)
    whole = Placement()
    titles = [Line(text, 13.0, bold=True) for text in ("forward, downwards", "backward, upwards")]
    middle = max(left.width, titles[0].width) + 2 * BETWEEN
    for part, title, x in zip((left, right), titles, (0.0, middle), strict=True):
        whole.texts.append(PlacedText((title,), x, 0.0))
        whole.add(part, x, _TITLE)
        whole.width = max(whole.width, x + title.width)
    whole.texts = [one for one in whole.texts if one.lines]
    ahead = len(left.routes)
    back = whole.routes[ahead:]
    del whole.routes[ahead:]
    return whole, [route for route in back if route.target is not None]


def _figure(whole: Placement, back: list[Route], key: bool) -> Figure:
    figure = figure_of(whole, key=key)
    axes = figure.axes[0]
    ink = INKS[0]
    for route in back:
        x, y = route.points[0]  # where the value leaves the box above, its gradient arrives
        tip = Path([(x, y), (x - 3.6, y + _ARROW), (x + 3.6, y + _ARROW), (x, y)], closed=True)
        axes.add_patch(PathPatch(tip, facecolor=ink, edgecolor="none", zorder=3))
        line = line_path([(x, y + 5.0), *route.points[1:]])
        axes.add_patch(PathPatch(line, fill=False, edgecolor=ink, linewidth=1.1, capstyle="butt", joinstyle="round",
                                 zorder=1, snap=False))  # fmt: skip
    return figure
