"""The debugger of targets: which node is the first whose result differs from the interpreter's.

The interpreter and the target run on the same inputs, and the values that both compute are compared by name, in
topological order. Behind the first value that differs, others differ because of it.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.blocked import to_plain

RELATIVE = 1e-4
ABSOLUTE = 1e-6


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

    def __str__(self) -> str:
        node = self.value.producer
        where = "" if node is None else f" of {node.where}"
        lines = [f"value {self.value.name!r}{where}", f"  expected: {self.expected}", f"  got: {self.got}"]
        if self.index is not None:
            error = "NaN or infinite" if math.isinf(self.error) else f"{self.error:.2g} of the largest magnitude"
            lines.insert(1, f"  where: element {list(self.index)}; {self.count:,} of {self.size:,} elements differ")
            lines.append(f"  largest error: {error}")
        return "\n".join(lines)


@dataclass(frozen=True)
class TargetComparison:
    """A target compared with the interpreter.

    Args:
        differences: One for each value that both compute, in topological order.
        unseen: Names of the values that the target does not show: it has fused them into others.
    """

    differences: tuple[Difference, ...]
    unseen: tuple[str, ...]

    @property
    def first_difference(self) -> Difference | None:
        """The first value that differs; None if all agree."""
        return next((difference for difference in self.differences if not difference.agrees), None)

    @property
    def agrees(self) -> bool:
        """Whether all values agree."""
        return self.first_difference is None

    def __str__(self) -> str:
        agreeing = sum(difference.agrees for difference in self.differences)
        line = f"{agreeing} of {len(self.differences)} values agree with the interpreter"
        if self.unseen:
            line += f"; not seen on the target: {', '.join(self.unseen)}"
        first = self.first_difference
        if first is None:
            return f"{line}; largest error {max((d.error for d in self.differences), default=0.0):.2g}"
        return f"{line}\nthe first that differs: {first}"


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
    return TargetComparison(tuple(found[name] for name in compared), unseen)


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
