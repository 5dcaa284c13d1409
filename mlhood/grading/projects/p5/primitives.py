"""Checks of P5.9: a new primitive with all the rules that JAX needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p5.probes:"
LOW, HIGH = -128, 127


def _draw(submission: Submission, *shape: int) -> tuple[np.ndarray, float]:
    """Draw values within and beyond the range of int8, away from its ends and from rounding ties, and the scale."""
    scale = float(submission.rng.choice([0.25, 0.5, 2.0]))
    steps = submission.rng.integers(-190, 190, shape) + submission.rng.uniform(-0.4, 0.4, shape)
    steps = np.where(np.abs(steps + 0.5) > 127, np.sign(steps) * (130 + np.abs(steps) / 4), steps)
    steps.flat[:4] = (150.25, -160.25, 3.25, -100.25)  # at least one of each kind
    return (steps * scale).astype(np.float32), scale


def _quantize(x: np.ndarray, scale: float) -> np.ndarray:
    return scale * np.clip(np.round(x / scale), LOW, HIGH)


def _own_quantize(submission: Submission, x: np.ndarray, scale: float) -> np.ndarray:
    """The student's own result without transformations, so that a wrong value does not count twice; else the right."""
    try:
        answer = submission.call(PROBES + "quantized", submission.value("fake_quantize"), x, scale)
        return expect.array(expect.mapping(answer, ("value",), "")["value"], x.shape, "")
    except expect.CheckFailed:
        return _quantize(x, scale)


def _call(submission: Submission, probe: str, x: np.ndarray, *arguments: object) -> Any:
    return submission.call(PROBES + probe, submission.value("fake_quantize"), x, *arguments)


@points(1)
def values_are_rounded_and_cut(submission: Submission) -> None:
    """`fake_quantize` rounds to multiples of the scale and clips them to -128 to 127 steps."""
    hint = "what `staircase` computes, in x's dtype: `def_impl` registers the implementation"
    for shape, dtype in (((40,), np.float32), ((5, 8), np.float32), ((30,), np.float16)):
        x, scale = _draw(submission, *shape)
        x = x.astype(dtype)
        with expect.case(f"{x.dtype} x {x.shape}, scale {scale:g}", hint):
            report = expect.mapping(_call(submission, "quantized", x, scale), ("value", "dtype"), "the result")
            expect.close(report["value"], _quantize(x.astype(np.float64), scale), "the value of `fake_quantize`")
            expect.equal(report["dtype"], str(x.dtype), "`fake_quantize` returns the wrong dtype")


@points(1)
def it_is_compiled(submission: Submission) -> None:
    """`fake_quantize` works under `jax.jit`, and its shape is known without values."""
    hint = "the abstract evaluation knows shape and dtype of the result; a lowering rule generates the code"
    for shape, dtype in (((6, 7), np.float32), ((4, 3, 2), np.float16)):
        x, scale = _draw(submission, *shape)
        x = x.astype(dtype)
        with expect.case(f"{x.dtype} x {x.shape}, scale {scale:g}", hint):
            keys = ("value", "shape", "dtype")
            report = expect.mapping(_call(submission, "quantized_compiled", x, scale), keys, "the result")
            expect.close(report["value"], _own_quantize(submission, x, scale), "the value of `fake_quantize`")
            expect.equal(report["shape"], [*x.shape], "JAX expects the wrong shape of `fake_quantize`")
            expect.equal(report["dtype"], str(x.dtype), "JAX expects the wrong dtype of `fake_quantize`")


def _derivatives(submission: Submission) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, str]:
    """Return derivatives in both modes, the tangent, which elements are in range, and a description of the case."""
    x, scale = _draw(submission, 40)
    x[-2:] = LOW * scale, HIGH * scale  # both ends are in range
    tangent = (1 + submission.rng.random(40)).astype(np.float32)
    given = f"x {x.shape}, scale {scale:g}"
    hint = "ad.primitive_jvps, or ad.defjvp, of the primitive"
    with expect.case(given, hint):
        answer = _call(submission, "quantized_derivatives", x, tangent, scale)
        report = expect.mapping(answer, ("forward", "backward"), "the derivatives")
        arrays = {name: expect.array(report[name], x.shape, f"the {name} derivative") for name in report}
    return arrays, tangent, (x / scale >= LOW) & (x / scale <= HIGH), given


@points(1)
def gradients_go_straight_through(submission: Submission) -> None:
    """`fake_quantize` passes derivatives unchanged where x is in range, forward and backward."""
    derivatives, tangent, inside, given = _derivatives(submission)
    hint = "the derivative of rounding is 0 nearly everywhere; the straight-through estimator uses 1 instead"
    for name, got in derivatives.items():
        what = f"the {name} derivative of `fake_quantize` in range"
        expect.close(got[inside], tangent[inside], what, given=given, hint=hint)
    x, scale = _draw(submission, 4, 6)
    with expect.case(f"x {x.shape}, scale {scale:g}, jax.jit(jax.vmap(jax.grad(...)))", hint):
        got = expect.array(_call(submission, "quantized_compiled_derivatives", x, scale), x.shape, "the gradient")
        inside = (x / scale >= LOW) & (x / scale <= HIGH)
        expect.close(got[inside], np.ones(inside.sum()), "the gradient of `fake_quantize` in range")


@points(1)
def gradients_end_at_the_range(submission: Submission) -> None:
    """`fake_quantize` has the derivative 0 where x is out of range, forward and backward."""
    derivatives, tangent, inside, given = _derivatives(submission)
    hint = "a clipped value does not change the result; both ends of the range are inside"
    for name, got in derivatives.items():
        what = f"the {name} derivative of `fake_quantize`"
        expect.true(bool(got[inside].any()), f"{what} is 0 everywhere", given=given)
        expect.close(got[~inside], 0 * tangent[~inside], f"{what} out of range", given=given, hint=hint)


@points(1)
def batches_keep_their_axis(submission: Submission) -> None:
    """`fake_quantize` works under `jax.vmap`, along any axis."""
    hint = "the batching rule receives the axes and returns the result's batch axis: the same as x's"
    for axis, shape in ((0, (4, 6)), (1, (4, 6)), (2, (3, 2, 5))):
        x, scale = _draw(submission, *shape)
        with expect.case(f"x {x.shape}, scale {scale:g}, in_axes={axis}, out_axes={axis}", hint):
            got = _call(submission, "quantized_batch", x, scale, axis)
            expect.close(got, _own_quantize(submission, x, scale), "the values of `fake_quantize`")


@points(1)
def it_stands_in_the_jaxpr(submission: Submission) -> None:
    """`fake_quantize` appears in a jaxpr as one operation."""
    x, scale = _draw(submission, 24)
    hint = "the function binds the primitive, whose name is fake_quantize, and does nothing else"
    with expect.case(f"x {x.shape}, scale {scale:g}", hint):
        other = submission.normal(*x.shape)
        answer = _call(submission, "quantized_primitives", x, scale, other)
        report = expect.mapping(answer, ("operations", "value", "replaced"), "the jaxpr of `fake_quantize`")
        expect.resembles(report["value"], _quantize(x, scale), "what the jaxpr of `fake_quantize` computes")
        names = [str(name) for name in report["operations"]] if isinstance(report["operations"], list | tuple) else []
        shown, what = ", ".join(names) or "nothing", "there is no operation `fake_quantize`"
        expect.true(names.count("fake_quantize") == 1, what, expected="fake_quantize", got=shown)
        same = isinstance(report["replaced"], np.ndarray) and np.array_equal(report["replaced"], other)
        expect.true(same, "other operations do the work", expected="only fake_quantize", got=shown)


TASKS = (
    Task(
        "P5.9",
        "A primitive of your own",
        checks=(
            values_are_rounded_and_cut,
            it_is_compiled,
            gradients_go_straight_through,
            gradients_end_at_the_range,
            batches_keep_their_axis,
            it_stands_in_the_jaxpr,
        ),
        forbidden=("mlhood.jaxlab.tracing.primitive",),
        minutes=40,
        builds_on=("P2.6", "P5.5", "P5.7"),
    ),
)
