"""Checks of P2.1: the fusion of two loop nests, and the memory traffic that it saves.

What a nest stores and reads again shows in its results. In a y of Booleans nothing is left of a sum that is stored
there. And if y has the memory of x, w or b, whoever reads an element after the first y[i, j] are written reads these.
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.probes import as_input, shared_part
from mlhood.grading.variants.parameter import Parameter

# the last argument of `linear_relu`
RELU_ARGUMENT = Parameter("relu_argument", ("none", "ceiling", "slope", "threshold"))

PROBES = "mlhood.grading.projects.p2.probes:"
INPUTS = ("x", "w", "b")
EDGES = {"ceiling": 0.0, "slope": 2.5, "threshold": 1.0}  # of the arguments of variants
SHARED_SIZES = (9, 2, 8)  # rows, depth and outputs; a block of sums in registers is a small part of y


def _draw(submission: Submission, rows: int, depth: int, outputs: int, whole: bool = False) -> dict[str, np.ndarray]:
    """Draw arrays; of whole numbers, if asked: some sums are the same, also as 0 or a threshold."""
    shapes = (rows, depth), (outputs, depth), (outputs,)
    arrays = {name: submission.normal(*shape) for name, shape in zip(INPUTS, shapes, strict=True)}
    return {name: np.rint(array) for name, array in arrays.items()} if whole else arrays


def _run(submission: Submission, arrays: dict[str, np.ndarray], *how: Any, **extra: float) -> Any:
    """Return y as `linear_relu` leaves it; `how` is what the probe takes besides."""
    with expect.case(f"x {[*arrays['x'].shape]}, w {[*arrays['w'].shape]}"):
        return submission.probe(PROBES + "filled", "linear_relu", arrays, extra, *how)


def _sizes(submission: Submission, depths: tuple[int, int]) -> tuple[int, int, int]:
    """Draw rows, depth and outputs, all different."""
    depth = int(submission.rng.choice(depths))
    rows, outputs = (int(n) for n in submission.rng.permutation([n for n in range(3, 8) if n != depth])[:2])
    return rows, depth, outputs


def _layer(arrays: dict[str, np.ndarray], **extra: float) -> np.ndarray:
    """Return relu(x wᵀ + b)."""
    return _relu(arrays["x"] @ arrays["w"].T + arrays["b"], **extra)


def _relu(z: np.ndarray, ceiling: float = np.inf, slope: float = 0.0, threshold: float = 0.0) -> np.ndarray:
    """Return relu(z), clipped at a ceiling, with a slope below 0, or 0 for all that do not exceed a threshold."""
    positive = np.where(z > threshold, np.minimum(z, ceiling), 0)
    return np.where(z < 0, slope * z, positive).astype(z.dtype)


@points(1)
def one_nest_computes_the_layer(submission: Submission) -> None:
    """`linear_relu` writes relu(x wᵀ + b) into y, for any sizes."""
    hint = "compare with the two nests line by line: where does the bias enter, what does the max see, and is every \
y[i, j] written?"
    argument = submission.parameters.relu_argument
    extras = [{}, {}]
    if argument != "none":
        extras = [{argument: float(submission.rng.uniform(0.2, 0.6))}, {argument: EDGES[argument]}, {}]
    for number, extra in enumerate(extras):
        # with an odd depth, a loop that takes two steps at once has one left
        sizes = _sizes(submission, (5, 7) if number == 1 else (4, 6))
        arrays = _draw(submission, *sizes, whole=number == 1)
        got, want = _run(submission, arrays, **extra), _layer(arrays, **extra)
        given = f"x {[*arrays['x'].shape]}, w {[*arrays['w'].shape]}"
        given += f", {extra}" if extra else f"; `{argument}` is left out" if argument != "none" else ""
        expect.close(got, want, "y, as `linear_relu` leaves it", given=given, hint=hint)


@points(1)
def nothing_is_stored_in_between(submission: Submission) -> None:
    """`linear_relu` stores no sum before it is complete, in y or anywhere else."""
    arrays = _draw(submission, *_sizes(submission, (4, 6)))
    once = expect.array(_run(submission, arrays), (len(arrays["x"]), len(arrays["w"])), "y, as `linear_relu` leaves it")
    hint = "y[i, j] has to hold relu(x wᵀ + b)"
    expect.resembles(once, _layer(arrays), "y, as `linear_relu` leaves it", hint=hint)
    what, hint = "`linear_relu` reads elements of y back", "keep the sum in a variable until it is complete"
    expected, given = "True where a result is not 0", "a y of Booleans, in which nothing is left of what a sum was"
    got = _run(submission, arrays, "bool")
    same = isinstance(got, np.ndarray) and np.array_equal(got, once != 0)
    expect.true(same, what, expected=expected, got=got, given=given, hint=hint)
    single = {name: 1 + np.abs(array) for name, array in _draw(submission, 1, 1, 1).items()}
    alone, what = _run(submission, single), "`linear_relu` writes elements of y more than once"
    for name in INPUTS:  # it is overwritten by the only result, which comes last
        same = expect.holds(expect.close, _run(submission, single, "float32", name), alone, "y")
        given = f"a single element, in the memory of that of {name}"
        hint = "each y[i, j] needs one assignment, after all that it is computed from"
        expect.true(same, what, given=given, hint=hint)
    what = "`linear_relu` reads x and w before it writes the first y[i, j]: all sums are stored somewhere else first"
    given = "an x or a w that has the memory of a part of y"
    hint = "one nest: when is the sum of y[i, j] complete, and where does it go?"
    expect.true(max(_reads(submission)[name] for name in ("x", "w")) > 0, what, given=given, hint=hint)


def _reads(submission: Submission) -> dict[str, float]:
    return submission.once("reads", lambda: {name: _read_again(submission, name) for name in INPUTS})


def _read_again(submission: Submission, name: str) -> float:
    """Return for which share of the y[i, j] elements of x, w or b are read that others have needed, too.

    The array has the memory of the first or the last elements of y along the axis that it lacks. So where an element is
    read again, it is a result, and the y[i, j] differs. What no nest of a right `linear_relu` can leave counts as 0.
    """
    rows, depth, outputs = SHARED_SIZES
    arrays = {key: 1 + np.abs(array) for key, array in _draw(submission, rows, depth, outputs).items()}
    plain, shares = _run(submission, arrays), []
    is_right = expect.holds(expect.close, plain, _layer(arrays), "y")
    for last in (False, True):
        place, got = shared_part(name, depth, last), _run(submission, arrays, "float32", name, last)
        got = expect.array(got, (rows, outputs), "y, as `linear_relu` leaves it")
        again = _layer(arrays | {name: as_input(name, got[place])})
        others = np.ones(got.shape, bool)
        others[place] = False
        same = np.isclose(got, plain, rtol=1e-4)
        explained = np.isclose(got, again, rtol=1e-4) | same
        shares.append(float(1 - same[others].mean()) if explained[others].all() or not is_right else 0.0)
    return max(shares)


@points(2)
def traffic_is_predicted(submission: Submission) -> None:
    """`traffic` returns how many elements the two loop nests, and your fused one, read and write."""
    for _ in range(3):
        rows, depth, outputs = submission.rng.permutation(np.arange(5, 22))[:3].tolist()
        n = rows * outputs
        want = {
            "fused": sum(_inputs_read(submission, rows, depth, outputs).values()) + n,
            "separate": n * (2 * depth + 4),
        }
        hint = "follow one (i, j) through each nest, line by line: what does it read of b, x, w and z, how often?"
        with expect.case(f"rows={rows}, depth={depth}, outputs={outputs}", hint):
            result = submission.call("traffic", rows, depth, outputs)
            report = expect.mapping(result, tuple(want), "what `traffic` returns")
            for key, count in want.items():
                got = expect.integer(report[key], f"`{key}` of `traffic`")
                expect.equal(got, count, f"`traffic` is wrong for `{key}`")


def _inputs_read(submission: Submission, rows: int, depth: int, outputs: int) -> dict[str, int]:
    """Return how many elements of x, w and b the student's nest reads; if it is not a right one, the usual nest."""
    again = {"x": rows * outputs * depth, "w": rows * outputs * depth, "b": rows * outputs}
    once = {"x": rows * depth, "w": outputs * depth, "b": outputs}
    if not submission.passed(one_nest_computes_the_layer, nothing_is_stored_in_between):
        return again
    return {name: again[name] if share else once[name] for name, share in _reads(submission).items()}


P2_1 = Task(
    "P2.1",
    "Fuse two loop nests",
    libraries=LOOPS,
    minutes=10,
    varies=(RELU_ARGUMENT,),
)
