"""Checks of P2.1: two loop nests made one, and the memory traffic that this saves."""

from __future__ import annotations

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.rpc.codec import Remote

PROBES = "mlhood.grading.projects.p2.probes:"


def _layer(submission: Submission) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Arguments x [rows, depth], w [outputs, depth], b [outputs], of three different sizes."""
    rows, depth, outputs = (int(n) for n in submission.rng.permutation([3, 4, 5, 6, 7])[:3])
    draw = submission.rng.standard_normal
    return tuple(draw(shape).astype(np.float32) for shape in ((rows, depth), (outputs, depth), (outputs,)))  # type: ignore[return-value]


def function(submission: Submission, name: str) -> Remote:
    """A function of the notebook, to hand to a probe."""
    found = submission.value(name)
    if not isinstance(found, Remote):
        expect.fail(f"`{name}` is not a function", expected=f"def {name}(...)", got=found)
    return found


def _run(submission: Submission) -> tuple[dict, np.ndarray]:
    x, w, b = _layer(submission)
    found = submission.call(PROBES + "counted", function(submission, "linear_relu"), x, w, b)
    keys = ("y", "reads", "writes")
    return dict(expect.mapping(found, keys, "what came of `linear_relu`")), np.maximum(x @ w.T + b, 0)


@points(3)
def one_nest_computes_the_layer(submission: Submission) -> None:
    """`linear_relu` writes relu(x wᵀ + b) into y, for any sizes."""
    found, want = submission.once("run", lambda: _run(submission))
    got = found["y"]
    if isinstance(got, np.ndarray) and got.shape == want.shape and np.isnan(got).any():
        expect.fail(
            "`linear_relu` leaves places of y unwritten",
            expected=f"{want.size} elements",
            got=f"{int(np.isfinite(got).sum())} written",
            hint="write the result into the y that comes in: y[i, j] = ... for every row i and output j",
        )
    hint = "y[i, j] = max(b[j] + sum over k of x[i, k] * w[j, k], 0); the bias belongs inside the max"
    expect.close(got, want, "y", given="x, w and b of random sizes", hint=hint)


@points(2)
def nothing_is_stored_in_between(submission: Submission) -> None:
    """It writes every element of y once and never reads it back."""
    found, want = submission.once("run", lambda: _run(submission))
    hint = "keep the sum in a variable of its own (total += ...), and write y[i, j] once, at the end"
    expect.equal(found["writes"], want.size, "y is not written once per element", hint=hint)
    expect.equal(found["reads"], 0, "y is read while it is being made", hint=hint)


@points(3)
def traffic_is_predicted(submission: Submission) -> None:
    """`traffic` says how many elements the two loop nests and the fused one read and write."""
    for _ in range(3):
        rows, depth, outputs = (int(n) for n in submission.rng.permutation(np.arange(5, 60))[:3])
        found = submission.call("traffic", rows, depth, outputs)
        report = expect.mapping(found, ("separate", "fused"), "what `traffic` returns")
        products = rows * outputs * (2 * depth + 1)
        for key, want, hint in (
            ("fused", products + rows * outputs, "each y[i, j]: reads b[j] and `depth` pairs x, w; writes once"),
            (
                "separate",
                products + 3 * rows * outputs,
                "as fused, but z is written, read again, and then y is written",
            ),
        ):
            got = expect.number(report[key], f"`{key}`")
            given = f"rows={rows}, depth={depth}, outputs={outputs}"
            expect.equal(got, float(want), f"`{key}` is wrong", given=given, hint=hint)


TASKS = (
    Task(
        "P2.1",
        "Two loop nests made one",
        checks=(
            one_nest_computes_the_layer,
            nothing_is_stored_in_between,
            traffic_is_predicted,
        ),
        forbidden=("torch.nn", "mlhood.kernels"),
    ),
)
