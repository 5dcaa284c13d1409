"""Checks of P2.1: the fusion of two loop nests, and the memory traffic that it saves."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.bare.libraries import LOOPS
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.rpc.codec import Remote
from mlhood.grading.variants.parameter import Parameter

# the last argument of `linear_relu`, and what `traffic` counts
RELU_ARGUMENT = Parameter("relu_argument", ("none", "ceiling", "slope", "threshold"))
TRAFFIC_UNIT = Parameter("traffic_unit", ("elements", "bytes of float32", "bytes of float64"))
UNIT_BYTES = {"elements": 1, "bytes of float32": 4, "bytes of float64": 8}

PROBES = "mlhood.grading.projects.p2.probes:"
LARGE = (19, 17)  # rows and outputs
EARLY = 0.5  # share of x and of w that is read before anything is written: all of both if the sums are kept


def function(submission: Submission, name: str) -> Remote:
    """Return a reference to a function of the notebook, as an argument of a probe."""
    value = submission.value(name)
    if not isinstance(value, Remote):
        expect.fail(f"`{name}` is not a function", expected=f"def {name}(...)", got=value)
    return value


def _run(
    submission: Submission, sizes: tuple[int, ...] | None = None, *, by_default: bool = False
) -> tuple[dict, np.ndarray]:
    """Return what `linear_relu` computes and how often it accesses its arrays, and the right result.

    With `by_default`, the last argument that `linear_relu` has in a variant is left out.
    """
    rows, depth, outputs = sizes or _sizes(submission, depths=(4, 6))
    x, w, b = submission.normal(rows, depth), submission.normal(outputs, depth), submission.normal(outputs)
    with expect.case(f"x {[rows, depth]}, w {[outputs, depth]}"):
        extra = {} if by_default else _relu_argument(submission)
        counts = submission.call(PROBES + "counted", function(submission, "linear_relu"), x, w, b, extra)
    keys = ("y", "reads", "writes", "inputs", "early", "broken")
    report = dict(expect.mapping(counts, keys, "the result of `linear_relu`"))
    check_rules(report["broken"], "`linear_relu`")
    return report, _relu(x @ w.T + b, **extra)


def _sizes(submission: Submission, depths: tuple[int, int]) -> tuple[int, int, int]:
    """Draw rows, depth and outputs, all different."""
    depth = int(submission.rng.choice(depths))
    rows, outputs = (int(n) for n in submission.rng.permutation([n for n in range(3, 8) if n != depth])[:2])
    return rows, depth, outputs


def _relu_argument(submission: Submission) -> dict[str, Any]:
    """Draw the last argument of `linear_relu` in a variant."""
    argument = submission.parameters.relu_argument
    return {} if argument == "none" else {argument: float(submission.rng.uniform(0.2, 0.6))}


def _relu(z: np.ndarray, ceiling: float = np.inf, slope: float = 0.0, threshold: float = 0.0) -> np.ndarray:
    """Return relu(z), clipped at a ceiling, with a slope below 0, or 0 for all that do not exceed a threshold."""
    positive = np.where(z > threshold, np.minimum(z, ceiling), 0)
    return np.where(z < 0, slope * z, positive).astype(z.dtype)


@points(1)
def one_nest_computes_the_layer(submission: Submission) -> None:
    """`linear_relu` writes relu(x wᵀ + b) into y, for any sizes."""
    counts, want = submission.once("run", lambda: _run(submission))
    got = counts["y"]
    if isinstance(got, np.ndarray) and got.shape == want.shape and np.isnan(got).any():
        expect.fail(
            "`linear_relu` leaves elements of y unwritten",
            expected=f"{want.size} elements written",
            got=int(np.isfinite(got).sum()),
            hint="the argument y is where the result goes: every row i and every output j needs one assignment",
        )
    hint = "compare with the two nests line by line: where does the bias enter, and what does the max see?"
    expect.close(got, want, "y, as `linear_relu` leaves it", given="x, w and b of random sizes", hint=hint)
    odd = _sizes(submission, depths=(5, 7))  # a loop that takes two steps at once has one left
    counts, want = _run(submission, odd)
    given = f"x {[odd[0], odd[1]]}, w {[odd[2], odd[1]]}"
    expect.close(counts["y"], want, "y, as `linear_relu` leaves it", given=given, hint=hint)
    argument = submission.parameters.relu_argument
    if argument != "none":
        counts, want = _run(submission, by_default=True)
        expect.close(counts["y"], want, "y, as `linear_relu` leaves it", given=f"`{argument}` is left out", hint=hint)


@points(1)
def nothing_is_stored_in_between(submission: Submission) -> None:
    """`linear_relu` writes every element of y once and never reads it back."""
    counts, want = submission.once("run", lambda: _run(submission))
    hint = "keep the sum in a variable until it is complete"
    expect.equal(counts["writes"], want.size, "`linear_relu` does not write every element of y once", hint=hint)
    expect.equal(counts["reads"], 0, "`linear_relu` reads elements of y back", hint=hint)
    expect.resembles(counts["y"], want, "y, as `linear_relu` leaves it", hint="y[i, j] has to hold relu(x wᵀ + b)")
    # so large that a block of sums in registers is a small part of y
    counts, _ = _run(submission, (LARGE[0], int(submission.rng.choice([4, 6])), LARGE[1]))
    what = "`linear_relu` reads x and w before it writes the first y[i, j]: all sums are stored somewhere else first"
    expected, got = "less than half of both", f"{counts['early']:.0%} or more of each"
    hint = "one nest: when is the sum of y[i, j] complete, and where does it go?"
    given = f"{LARGE[0]} rows and {LARGE[1]} outputs"
    early = expect.number(counts["early"], "what is read first")
    expect.true(early < EARLY, what, expected=expected, got=got, given=given, hint=hint)


def _own_traffic(submission: Submission, sizes: tuple[int, ...]) -> int | None:
    """Return the elements that the student's nest reads and writes; None if it is not a right one."""
    try:
        counts, want = _run(submission, sizes)
        expect.close(counts["y"], want, "y")
    except expect.CheckFailed:
        return None
    right = counts["writes"] == want.size and counts["reads"] == 0
    return counts["inputs"] + counts["writes"] if right and isinstance(counts["inputs"], int) else None


@points(2)
def traffic_is_predicted(submission: Submission) -> None:
    """`traffic` returns how many {{ traffic_unit }} the two loop nests, and your fused one, read and write."""
    for _ in range(3):
        rows, depth, outputs = sizes = tuple(int(n) for n in submission.rng.permutation(np.arange(5, 22))[:3])
        given = f"rows={rows}, depth={depth}, outputs={outputs}"
        with expect.case(given):
            result = submission.call("traffic", rows, depth, outputs)
            report = expect.mapping(result, ("separate", "fused"), "what `traffic` returns")
            got = {key: expect.integer(report[key], f"`{key}` of `traffic`") for key in ("separate", "fused")}
        unit = UNIT_BYTES[submission.parameters.traffic_unit]
        products = rows * outputs * (2 * depth + 1)
        own = _own_traffic(submission, sizes)
        fused = products + rows * outputs if own is None else own
        hint = "follow one (i, j) through your nest, line by line; what does it read of b, x and w, how often?"
        expect.equal(got["fused"], unit * fused, "`traffic` is wrong for `fused`", given=given, hint=hint)
        hint = "follow one (i, j) through both nests, line by line; which accesses to z does the first make?"
        separate = products + 3 * rows * outputs
        expect.equal(got["separate"], unit * separate, "`traffic` is wrong for `separate`", given=given, hint=hint)


TASKS = (
    Task(
        "P2.1",
        "Fuse two loop nests",
        checks=(one_nest_computes_the_layer, nothing_is_stored_in_between, traffic_is_predicted),
        libraries=LOOPS,
        minutes=10,
        varies=(RELU_ARGUMENT, TRAFFIC_UNIT),
    ),
)
