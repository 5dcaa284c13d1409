"""Checks of P2.1: the fusion of two loop nests, and the memory traffic that it saves."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.rpc.codec import Remote

PROBES = "mlhood.grading.projects.p2.probes:"


def function(submission: Submission, name: str) -> Remote:
    """Return a reference to a function of the notebook, as an argument of a probe."""
    value = submission.value(name)
    if not isinstance(value, Remote):
        expect.fail(f"`{name}` is not a function", expected=f"def {name}(...)", got=value)
    return value


def _run(submission: Submission) -> tuple[dict, np.ndarray]:
    rows, depth, outputs = (int(n) for n in submission.rng.permutation([3, 4, 5, 6, 7])[:3])  # all different
    x, w, b = submission.normal(rows, depth), submission.normal(outputs, depth), submission.normal(outputs)
    counts = submission.call(PROBES + "counted", function(submission, "linear_relu"), x, w, b)
    keys = ("y", "reads", "writes")
    return dict(expect.mapping(counts, keys, "the result of `linear_relu`")), np.maximum(x @ w.T + b, 0)


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
            hint="write the result into the argument y: y[i, j] = ... for every row i and output j",
        )
    hint = "y[i, j] = max(b[j] + sum over k of x[i, k] * w[j, k], 0); the bias belongs inside the max"
    expect.close(got, want, "y", given="x, w and b of random sizes", hint=hint)


@points(1)
def nothing_is_stored_in_between(submission: Submission) -> None:
    """`linear_relu` writes every element of y once and never reads it back."""
    counts, want = submission.once("run", lambda: _run(submission))
    hint = "keep the sum in a variable (total += ...), and write y[i, j] once, at the end"
    expect.equal(counts["writes"], want.size, "the elements of y are not written exactly once", hint=hint)
    expect.equal(counts["reads"], 0, "elements of y are read back", hint=hint)
    expect.resembles(counts["y"], want, "y", hint="y[i, j] = max(b[j] + sum over k of x[i, k] * w[j, k], 0)")


@points(2)
def traffic_is_predicted(submission: Submission) -> None:
    """`traffic` returns how many elements the two loop nests, and the fused one, read and write."""
    for _ in range(3):
        rows, depth, outputs = (int(n) for n in submission.rng.permutation(np.arange(5, 60))[:3])
        result = submission.call("traffic", rows, depth, outputs)
        report = expect.mapping(result, ("separate", "fused"), "what `traffic` returns")
        products = rows * outputs * (2 * depth + 1)
        for key, want, hint in (
            (
                "fused",
                products + rows * outputs,
                "each y[i, j] reads b[j] and `depth` pairs of x and w, and is written once",
            ),
            (
                "separate",
                products + 3 * rows * outputs,
                "as `fused`, but z is written and read again before y is written",
            ),
        ):
            got = expect.number(report[key], f"`{key}`")
            given = f"rows={rows}, depth={depth}, outputs={outputs}"
            expect.equal(got, float(want), f"`{key}` is wrong", given=given, hint=hint)


TASKS = (
    Task(
        "P2.1",
        "Fuse two loop nests",
        checks=(one_nest_computes_the_layer, nothing_is_stored_in_between, traffic_is_predicted),
        forbidden=("torch.nn", "mlhood.kernels"),
    ),
)
