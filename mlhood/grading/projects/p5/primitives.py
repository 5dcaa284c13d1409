"""Checks of P5.9: an operation that JAX does not have, with all that JAX asks of one."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p5.probes:"
LOW, HIGH = -128, 127


def _draw(submission: Submission, *shape: int) -> tuple[np.ndarray, float]:
    """Numbers in the range of int8 and beyond it, none near a border or half way between two steps; and the scale."""
    scale = float(submission.rng.choice([0.25, 0.5, 2.0]))
    steps = submission.rng.integers(-190, 190, shape) + submission.rng.uniform(-0.4, 0.4, shape)
    steps = np.where(np.abs(steps + 0.5) > 127, np.sign(steps) * (130 + np.abs(steps) / 4), steps)
    steps.flat[:4] = (150.25, -160.25, 3.25, -100.25)  # some of each kind
    return (steps * scale).astype(np.float32), scale


def _value(x: np.ndarray, scale: float) -> np.ndarray:
    return scale * np.clip(np.round(x / scale), LOW, HIGH)


def _own(submission: Submission, x: np.ndarray, scale: float) -> np.ndarray:
    """What the student's operation makes of x as it is, so that a wrong value is not counted again; else the right."""
    try:
        told = submission.call(PROBES + "quantized", submission.value("fake_quantize"), x, scale)
        return expect.array(expect.mapping(told, ("value",), "")["value"], x.shape, "")
    except expect.CheckFailed:
        return _value(x, scale)


def _inside(x: np.ndarray, scale: float) -> np.ndarray:
    return (x / scale >= LOW) & (x / scale <= HIGH)


def _asked(submission: Submission, probe: str, x: np.ndarray, scale: float, hint: str, *rest: object) -> Any:
    with expect.case(f"x {x.shape}, scale {scale:g}", hint):
        return submission.call(PROBES + probe, submission.value("fake_quantize"), x, *rest)


@points(1)
def values_are_rounded_and_cut(submission: Submission) -> None:
    """`fake_quantize` rounds to multiples of the scale, from -128 to 127 of them."""
    hint = "scale * clip(round(x / scale), -128, 127), of x's dtype: `def_impl` says how it is worked out"
    for shape in ((40,), (5, 8)):
        x, scale = _draw(submission, *shape)
        given = f"x {x.shape}, scale {scale:g}"
        told = expect.mapping(_asked(submission, "quantized", x, scale, hint, scale), ("value", "dtype"), "the result")
        expect.close(told["value"], _value(x, scale), "the value", given=given, hint=hint)
        expect.equal(told["dtype"], "float32", "the wrong type comes out", given=given, hint=hint)


@points(1)
def it_is_compiled(submission: Submission) -> None:
    """`fake_quantize` works under `jax.jit`, and JAX knows its shape without numbers."""
    x, scale = _draw(submission, 6, 7)
    hint = "`def_abstract_eval` gives ShapedArray(x.shape, x.dtype); a lowering gives the code"
    keys = ("value", "shape", "dtype")
    told = expect.mapping(_asked(submission, "quantized_compiled", x, scale, hint, scale), keys, "the result")
    given = f"x {x.shape}, scale {scale:g}"
    expect.close(told["value"], _own(submission, x, scale), "the value", given=given, hint=hint)
    expect.equal(told["shape"], [*x.shape], "JAX expects another shape", given=given, hint=hint)
    expect.equal(told["dtype"], "float32", "JAX expects another type", given=given, hint=hint)


def _derivatives(submission: Submission) -> tuple[dict[str, np.ndarray], np.ndarray, np.ndarray, str]:
    """Derivatives in both modes, the tangent, what is inside of the range, and what was asked."""
    x, scale = _draw(submission, 40)
    tangent = (1 + submission.rng.random(40)).astype(np.float32)
    hint = "ad.primitive_jvps, or ad.defjvp: the tangent goes straight through where -128 <= x / scale <= 127"
    told = _asked(submission, "quantized_derivatives", x, scale, hint, tangent, scale)
    given = f"x {x.shape}, scale {scale:g}"
    found = expect.mapping(told, ("forward", "backward"), "the derivatives", given=given)
    arrays = {name: expect.array(found[name], x.shape, f"the {name} derivative", given=given) for name in found}
    return arrays, tangent, _inside(x, scale), given


@points(1)
def gradients_go_straight_through(submission: Submission) -> None:
    """`fake_quantize` lets derivatives pass where x is in the range, forward and backward."""
    found, tangent, inside, given = _derivatives(submission)
    for name, got in found.items():
        hint = "rounding has the derivative 0 nearly everywhere; straight through takes 1 in its place"
        expect.close(got[inside], tangent[inside], f"the {name} derivative in the range", given=given, hint=hint)


@points(1)
def gradients_end_at_the_range(submission: Submission) -> None:
    """`fake_quantize` has the derivative 0 where x is out of the range, forward and backward."""
    found, tangent, inside, given = _derivatives(submission)
    for name, got in found.items():
        expect.true(bool(got[inside].any()), f"the {name} derivative is 0 everywhere", given=given)
        hint = "g where -128 <= x / scale <= 127, else 0: what is cut off does not change the result"
        expect.close(got[~inside], 0 * tangent[~inside], f"the {name} derivative out of the range", given=given,
                     hint=hint)  # fmt: skip


@points(1)
def batches_keep_their_axis(submission: Submission) -> None:
    """`fake_quantize` works under `jax.vmap`, along any axis."""
    for axis in (0, 1):
        x, scale = _draw(submission, 4, 6)
        hint = "the batching rule gets the axes, and says where the result has its own: where x had it"
        given = f"x {x.shape}, scale {scale:g}, in_axes={axis}, out_axes={axis}"
        got = _asked(submission, "quantized_batch", x, scale, hint, scale, axis)
        expect.close(got, _own(submission, x, scale), "the values", given=given, hint=hint)


@points(1)
def it_stands_in_the_jaxpr(submission: Submission) -> None:
    """`fake_quantize` is one operation of its own in a jaxpr."""
    x, scale = _draw(submission, 6)
    hint = 'fake_quantize_p = jax.extend.core.Primitive("fake_quantize"); fake_quantize_p.bind(x, scale=scale)'
    told = _asked(submission, "quantized_primitives", x, scale, hint, scale)
    names = [str(name) for name in told] if isinstance(told, list | tuple) else []
    shown = ", ".join(names) or "nothing"
    expect.true(names.count("fake_quantize") == 1, "there is no operation `fake_quantize`", expected="fake_quantize",
                got=shown, hint=hint)  # fmt: skip
    spelled = [name for name in names if name in ("round", "round_nearest_even", "div", "clamp", "mul")]
    expect.true(not spelled, "other operations do the work", expected="fake_quantize alone", got=shown, hint=hint)


TASKS = (
    Task(
        "P5.9",
        "An operation of your own",
        checks=(
            values_are_rounded_and_cut,
            it_is_compiled,
            gradients_go_straight_through,
            gradients_end_at_the_range,
            batches_keep_their_axis,
            it_stands_in_the_jaxpr,
        ),
        forbidden=("mlhood.jaxlab.tracing.primitive",),
    ),
)
