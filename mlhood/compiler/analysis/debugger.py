"""The debugger of targets: which node is the first whose result differs from the interpreter's.

The interpreter and the target run on the same inputs, and the values that both compute are compared by name, in
topological order. Behind the first value that differs, others differ because of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.hir.describe import describe
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.operators.blocked import to_plain
from mlhood.graph_drawing import Drawing, Line, draw_scene, fit_text

RELATIVE = 1e-4
ABSOLUTE = 1e-6
_SHOWN = 12  # values in the chart of errors
_BAR = 24  # characters of the longest bar
_DECADES = 8  # errors from 1e-8 to 1 have a bar
_LABEL_SIZE = 10.0


@dataclass(frozen=True)
class Difference:
    """One value as the target computes it, against the interpreter's.

    Args:
        value: The value in the graph.
        error: The largest error relative to the value's largest finite magnitude; infinite if a NaN, an infinity, the
            type or the shape differs.
        agrees: Whether this is within the tolerance.
        index: Where the error is largest; None if the types or shapes differ.
        expected: The interpreter's element there, or type and shape.
        got: The target's.
        count: Number of elements beyond the tolerance.
        size: Number of elements.
    """

    value: Value
    error: float
    agrees: bool
    index: tuple[int, ...] | None
    expected: Any
    got: Any
    count: int
    size: int

    @property
    def name(self) -> str:
        """The value's name."""
        return self.value.name

    def __str__(self) -> str:
        node = self.value.producer
        where = f"value {self.name!r}" if node is None else f"value {self.name!r} of {node.where}"
        lines = [where, f"  expected: {self.expected}", f"  got: {self.got}"]
        if self.index is not None:
            error = "NaN or infinite" if math.isinf(self.error) else f"{self.error:.2g} of the largest magnitude"
            lines.insert(1, f"  where: element {list(self.index)}; {self.count:,} of {self.size:,} elements differ")
            lines.append(f"  largest error: {error}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TargetComparison:
    """A target compared with the interpreter.

    Args:
        graph: The graph.
        differences: One for each value that both compute, in topological order.
        unseen: Names of the values that the target does not show: it has fused them into others.
        relative: Tolerance relative to a value's largest magnitude.
    """

    graph: Graph
    differences: tuple[Difference, ...]
    unseen: tuple[str, ...]
    relative: float

    @property
    def first_difference(self) -> Difference | None:
        """The first value that differs; None if all agree."""
        return next((difference for difference in self.differences if not difference.agrees), None)

    @property
    def agrees(self) -> bool:
        """Whether all values agree."""
        return self.first_difference is None

    @property
    def suspects(self) -> list[Node]:
        """The nodes that the error can be in: the differing value's, and those before it whose values are unseen."""
        first, unseen = self.first_difference, set(self.unseen)
        pending = [] if first is None or first.value.producer is None else [first.value.producer]
        found: dict[Node, None] = {}
        while pending:
            node = pending.pop()
            found[node] = None
            inputs = [value for value in node.inputs if value is not None and value.name in unseen]
            pending += [value.producer for value in inputs if value.producer is not None]
        return list(found)

    def __str__(self) -> str:
        agreeing = sum(difference.agrees for difference in self.differences)
        line = f"{agreeing} of {len(self.differences)} values agree with the interpreter"
        if self.unseen:
            line += f"; {len(self.unseen)} values of the graph are not seen on the target"
        first = self.first_difference
        if first is None:
            return f"{line}; largest error {max((d.error for d in self.differences), default=0.0):.2g}"
        others = [node.where for node in self.suspects[1:]]
        lines = [line, f"the first that differs: {first}"]
        lines += [f"  or, as their values are not seen: {', '.join(others)}"] if others else []
        return "\n".join([*lines, "error by value:", *self._chart(self.differences.index(first))])

    def _chart(self, first: int) -> list[str]:
        """Return a line with a bar on a logarithmic scale for each value around the first that differs."""
        start = max(min(first - _SHOWN // 2, len(self.differences) - _SHOWN), 0)
        shown = self.differences[start : start + _SHOWN]
        width = max(len(difference.name) for difference in shown)
        return [f"  {'  ' if d.agrees else '* '}{d.name:{width}}  {d.error:7.1e}  {_bar(d.error)}" for d in shown]

    def draw(self, path: str | Path | None = None) -> Drawing:
        """Draw the nodes around the first value that differs, each with its error; the whole graph if all agree.

        Args:
            path: Where to save the drawing, .svg or .png; nowhere if omitted.

        Raises:
            DrawingError: Too many values pass by other nodes, or the file's name has another ending.
            OutputError: The file cannot be written.
        """
        first = None if self.first_difference is None else self.first_difference.value.producer
        scene = describe(self.graph, part=None if first is None else neighbourhood(first))
        errors: dict[str, Difference] = {}
        for difference in self.differences:
            if difference.value.producer is not None:
                errors.setdefault(difference.value.producer.name, difference)
        for box in scene.boxes:
            kind, name = box.key
            if kind == "node" and name in errors:
                box.lines += (Line(fit_text(f"error {errors[name].error:.1e}", 44), _LABEL_SIZE),)
            if first is not None and box.key == ("node", first.name):
                box.mark = "differs"
        drawing = draw_scene(scene)
        if path is not None:
            drawing.save(path)
        return drawing


def compare(
    graph: Graph,
    runner: Runner,
    inputs: Mapping[str, Any],
    *,
    relative: float = RELATIVE,
    absolute: float = ABSOLUTE,
) -> TargetComparison:
    """Run a graph on the interpreter and on a target, and compare all values that both compute.

    Values that the target keeps in the blocked layout are compared in the plain one. Floats agree if
    |got - expected| <= relative * max |expected| + absolute, the maximum being that of the value's finite elements, and
    if NaN and infinities are in the same places; integers have to be equal.

    Args:
        graph: The graph.
        runner: The same graph, prepared for the target; its values are matched by name.
        inputs: An array for each placeholder, by name.
        relative: Tolerance relative to the largest magnitude of a value.
        absolute: Tolerance besides, for values that are nearly zero everywhere.

    Raises:
        CompilerError: The graph is invalid, or it or the target cannot run on these inputs.
    """
    expected: dict[str, np.ndarray] = {}
    outputs = Interpreter(graph).run(inputs, lambda value, array: expected.update({value.name: array}))
    found: dict[str, Difference] = {}

    def observe(value: Value, array: np.ndarray) -> None:
        # compared at once: a target may reuse the memory
        if value.name in expected:
            right = expected[value.name]
            plain = to_plain(array, right.shape[1]) if (array.ndim, right.ndim) == (5, 4) else array
            found[value.name] = difference(graph.value(value.name), right, plain, relative, absolute)

    results = runner.run(inputs, observe)
    for name, value in graph.outputs.items():
        seen = found.get(value.name)
        if seen is None or seen.agrees:  # what a target returns may be another array than what it shows
            found[value.name] = difference(value, outputs[name], np.asarray(results[name]), relative, absolute)
    order = [value for node in graph.topological() for value in node.outputs]
    compared = [value for value in found if value not in expected]  # outputs that are placeholders or constants
    compared += [value.name for value in order if value.name in found]
    unseen = tuple(value.name for value in order if value.name not in found)
    return TargetComparison(graph, tuple(found[name] for name in compared), unseen, relative)


def difference(
    value: Value, expected: np.ndarray, got: np.ndarray, relative: float = RELATIVE, absolute: float = ABSOLUTE
) -> Difference:
    """Compare one value with what it should be; see `compare`."""
    if expected.shape != got.shape or expected.dtype != got.dtype:
        right, wrong = (f"{array.dtype.name}{list(array.shape)}" for array in (expected, got))
        return Difference(value, math.inf, False, None, right, wrong, got.size, got.size)
    if not expected.size:
        return Difference(value, 0.0, True, None, None, None, 0, 0)
    with np.errstate(all="ignore"):
        errors = np.abs(np.subtract(got, expected, dtype=np.float64))
        errors[(got == expected) | (np.isnan(got) & np.isnan(expected))] = 0.0  # infinities and NaN in their places
        errors[np.isnan(errors)] = math.inf
        if expected.dtype.kind != "f":
            errors[got != expected] = np.maximum(errors[got != expected], 1.0)  # float64 rounds large integers
        finite = np.abs(expected[np.isfinite(expected)].astype(np.float64))
    scale = float(finite.max(initial=0.0))
    is_float = expected.dtype.kind == "f"
    count = int(np.count_nonzero(errors > (relative * scale + absolute if is_float else 0.0)))
    worst = tuple(int(i) for i in np.unravel_index(np.argmax(errors), errors.shape))
    largest = float(errors[worst])
    error = largest / scale if scale else largest
    return Difference(value, error, not count, worst, expected[worst].item(), got[worst].item(), count, got.size)


def neighbourhood(node: Node) -> list[str]:
    """Return the names of the nodes that are at most two edges before or behind a node, and its own."""
    names = {node.name: None}
    before, behind = [node], [node]
    for _ in range(2):
        before = [value.producer for each in before for value in each.inputs if value is not None and value.producer]
        behind = [user for each in behind for value in each.outputs for user in value.users]
        names |= dict.fromkeys(each.name for each in (*before, *behind))
    return list(names)


def _bar(error: float) -> str:
    if not error:
        return ""
    decades = min(max(math.log10(error) + _DECADES, 0.0), _DECADES)
    return "#" * max(round(_BAR * decades / _DECADES), 1)
