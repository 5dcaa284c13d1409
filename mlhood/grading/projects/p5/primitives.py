"""Checks of P5.9: a new primitive with all the rules that JAX needs."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5.libraries import JAX
from mlhood.grading.projects.p5.programs import run_programs
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes:"
LOW, HIGH = -128, 127
# one more parameter of the equation, beside the scale; by default it changes nothing, or the lower end alone
QUANTIZE_OPTION = Parameter("quantize_option", ("", "zero", "high"))
OPTION_VALUES = {"": (), "zero": (-100, -30, 40, 100), "high": (20, 60, 100)}
OPTION_DEFAULTS = {"zero": 0, "high": 127}
Parameters = dict[str, Any]


def _draw(submission: Submission, *shape: int, by_default: bool = False) -> tuple[np.ndarray, Parameters]:
    """Draw values within and beyond the range, away from its ends and from rounding ties, and parameters.

    With `by_default`, a parameter that may be left out has its default.
    """
    parameters = _draw_parameters(submission)
    if by_default:
        parameters |= {name: OPTION_DEFAULTS[name] for name in parameters if name != "scale"}
    steps = submission.rng.integers(-190, 190, shape) + submission.rng.uniform(-0.4, 0.4, shape)
    steps = np.where(np.abs(steps + 0.5) > 127, np.sign(steps) * (130 + np.abs(steps) / 4), steps)
    steps.flat[:4] = (150.25, -160.25, 3.25, -100.25)  # at least one of each kind
    if len(parameters) > 1:
        steps = _within(steps, *_range(**parameters))
    return (steps * parameters["scale"]).astype(np.float32), parameters


def _draw_parameters(submission: Submission) -> Parameters:
    """Draw the scale, and the other parameter that the primitive has in this variant, if any."""
    scale, option = float(submission.rng.choice([0.25, 0.5, 2.0])), submission.parameters.quantize_option
    return {"scale": scale} | ({option: int(submission.rng.choice(OPTION_VALUES[option]))} if option else {})


def _within(steps: np.ndarray, low: int, high: int) -> np.ndarray:
    """Move drawn steps, of which -128 to 127 are in range, so that these ends are; outside, they stay far from them."""
    inside = np.round(low + 1 + (np.round(steps) + 128) / 255 * (high - low - 2)) + (steps - np.round(steps))
    beyond = np.where(steps > 0, high + (steps - 127), low + (steps + 128))
    return np.where((steps > LOW) & (steps < HIGH), inside, beyond)


def _range(*, scale: float, zero: int = 0, high: int | None = None) -> tuple[int, int]:
    """Return the first and the last step of the range, in units of the `scale`, which it does not depend on."""
    return (LOW - zero, HIGH - zero) if high is None else (-high, high)


def _quantize(x: np.ndarray, parameters: Parameters) -> np.ndarray:
    return parameters["scale"] * np.clip(np.round(x / parameters["scale"]), *_range(**parameters))


def _in_range(x: np.ndarray, parameters: Parameters) -> np.ndarray:
    low, high = _range(**parameters)
    return (x / parameters["scale"] >= low) & (x / parameters["scale"] <= high)


def _described(parameters: Parameters) -> str:
    return ", ".join(f"{name} {value:g}" for name, value in parameters.items())


def _own_quantize(submission: Submission, x: np.ndarray, parameters: Parameters) -> np.ndarray:
    """The student's own result without transformations, so that a wrong value does not count twice; else the right.

    Fails if it is constant or linear in x: then nothing is quantized.
    """
    try:
        own = expect.array(_call(submission, "quantized", x, parameters, keys=("value",))["value"], x.shape, "")
    except expect.CheckFailed:
        return _quantize(x, parameters)
    linear = not np.ptp(own) or abs(np.corrcoef(own.ravel(), x.ravel())[0, 1]) > 1 - 1e-9
    expect.true(not linear, "`fake_quantize` quantizes nothing", got=own)
    return own


def _call(submission: Submission, probe: str, x: np.ndarray, *arguments: object, keys: tuple[str, ...] = ()) -> Any:
    return submission.probe(PROBES + probe, "fake_quantize", x, *arguments, keys=keys)


@points(2)
def values_are_rounded_and_cut(submission: Submission) -> None:
    """`fake_quantize` rounds to multiples of the scale and clips them to {{ "their range" if quantize_option else "-128 to 127 steps" }}."""  # noqa: E501
    hint = "what `staircase` computes, in x's dtype: `def_impl` registers the implementation"
    cases = ((40,), np.float32, False), ((5, 8), np.float32, True), ((30,), np.float16, False)
    for shape, dtype, by_default in cases:
        x, parameters = _draw(submission, *shape, by_default=by_default)
        x, passed = x.astype(dtype), {"scale": parameters["scale"]} if by_default else parameters
        with expect.case(f"{x.dtype} x {x.shape}, {_described(passed)}", hint):
            report = _call(submission, "quantized", x, passed, keys=("value", "dtype"))
            expect.close(report["value"], _quantize(x.astype(np.float64), parameters), "the value of `fake_quantize`")
            expect.equal(report["dtype"], str(x.dtype), "`fake_quantize` returns the wrong dtype")


@points(2)
def it_is_compiled(submission: Submission) -> None:
    """`fake_quantize` works under `jax.jit`, and its shape is known without values."""
    hint = "the abstract evaluation knows shape and dtype of the result; a lowering rule generates the code"
    for shape, dtype in (((6, 7), np.float32), ((4, 3, 2), np.float16)):
        x, parameters = _draw(submission, *shape)
        x = x.astype(dtype)
        with expect.case(f"{x.dtype} x {shape}, {_described(parameters)}", hint):
            program = _call(submission, "quantized_program", x, parameters)
            (report,) = run_programs(submission, (program, [[x]]))
            ((got,),) = report["results"]
            expect.close(got, _own_quantize(submission, x, parameters), "the value of `fake_quantize`")
            expect.equal(str(got.dtype), str(x.dtype), "JAX expects the wrong dtype of `fake_quantize`")


def _check_derivatives(submission: Submission, dtype: type, *, inside: bool, what: str, hint: str) -> None:
    """Check derivatives in or out of range, forward, backward and compiled, unless the others are 0 everywhere."""
    x, parameters = _draw(submission, 5, 8)
    low, high = _range(**parameters)
    # both ends are in range, and what is only rounded to them is not
    x[0, :4] = np.multiply((low - 0.3, high + 0.3, low, high), parameters["scale"])
    x, tangent = x.astype(dtype), (1 + submission.rng.random(x.shape)).astype(dtype)
    in_range = _in_range(x, parameters)
    with expect.case(f"{x.dtype} x {x.shape}, {_described(parameters)}", hint):
        _own_quantize(submission, x, parameters)  # the derivative of what quantizes nothing is the same
        names = ("forward", "backward", "compiled")
        report = _call(submission, "quantized_derivatives", x, tangent, parameters, keys=names)
        for name in names:
            got = expect.array(report[name], x.shape, f"the {name} derivative of `fake_quantize`")
            expect.is_array(got, dtype, f"the {name} derivative of `fake_quantize`")
            expect.true(bool(got.any()), f"the {name} derivative of `fake_quantize` is 0 everywhere")
            part, want = in_range == inside, tangent * in_range
            expect.close(got[part], want[part], f"the {name} derivative of `fake_quantize` {what}", rtol=1e-3)


@points(2)
def gradients_go_straight_through(submission: Submission) -> None:
    """`fake_quantize` passes derivatives unchanged where x is in range, forward and backward."""
    hint = (
        "ad.primitive_jvps, or ad.defjvp, of the primitive: the derivative of rounding is 0 nearly everywhere; the "
        "straight-through estimator uses 1 instead, in the dtype of x"
    )
    for dtype in (np.float32, np.float16):
        _check_derivatives(submission, dtype, inside=True, what="in range", hint=hint)


@points(2)
def gradients_end_at_the_range(submission: Submission) -> None:
    """`fake_quantize` has the derivative 0 where x is out of range, forward and backward."""
    hint = "a clipped value does not change the result; both ends of the range are inside"
    _check_derivatives(submission, np.float32, inside=False, what="out of range", hint=hint)


@points(2)
def batches_keep_their_axis(submission: Submission) -> None:
    """`fake_quantize` works under `jax.vmap`, along any axis."""
    hint = "the batching rule receives the axes and returns the result's batch axis: the same as x's"
    for axis, shape in ((0, (4, 6)), (1, (4, 6)), (2, (3, 2, 5))):
        x, parameters = _draw(submission, *shape)
        with expect.case(f"x {x.shape}, {_described(parameters)}, in_axes={axis}, out_axes={axis}", hint):
            got = _call(submission, "quantized_batch", x, parameters, axis)
            expect.close(got, _own_quantize(submission, x, parameters), "the values of `fake_quantize`")


@points(2)
def it_stands_in_the_jaxpr(submission: Submission) -> None:
    """`fake_quantize` appears in a jaxpr as one operation."""
    x, parameters = _draw(submission, 24)
    hint = "the function binds the primitive, whose name is fake_quantize, and does nothing else"
    with expect.case(f"x {x.shape}, {_described(parameters)}", hint):
        other = submission.normal(*x.shape)
        keys = ("operations", "inputs", "value", "replaced")
        report = _call(submission, "quantized_primitives", x, parameters, other, keys=keys)
        expect.resembles(report["value"], _quantize(x, parameters), "what the jaxpr of `fake_quantize` computes")
        names = [str(name) for name in report["operations"]] if isinstance(report["operations"], list | tuple) else []
        shown, what = ", ".join(names) or "nothing", "there is no operation `fake_quantize`"
        expect.true(names.count("fake_quantize") == 1, what, expected="fake_quantize", got=shown)
        what, expected = "the operation `fake_quantize` has more inputs than x", "one input: all else is a parameter"
        got = f"{report['inputs']} inputs"
        expect.true(report["inputs"] == 1, what, expected=expected, got=got)
        same = isinstance(report["replaced"], np.ndarray) and np.array_equal(report["replaced"], other)
        expect.true(same, "other operations do the work", expected="only fake_quantize", got=shown)


P5_9 = Task(
    "P5.9",
    "A primitive of your own",
    seconds=300.0,  # its last cell trains five times, which takes two minutes on a busy machine
    libraries=JAX,
    varies=(QUANTIZE_OPTION,),
    minutes=80,
    builds_on=("P2.6", "P5.5", "P5.7"),
)
