"""Checks of P5.6: rules for vector-Jacobian products, and a tape that is replayed backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import TAPE
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
CONV_INPUTS = ("x", "w", "bias")
# an attribute of an operator, beside those of `mlhood.jaxlab.autodiff`; with its default it changes nothing
RELU_OPTION = Parameter("relu_option", ("", "slope", "cap", "threshold"))
ADD_OPTION = Parameter("add_option", ("", "alpha", "beta", "scale"))
CONV_OPTION = Parameter("conv_option", ("", "relu", "scale", "flip"))
SMOOTHING = Parameter("smoothing", (0.0, 0.1, 0.2, 0.3))  # of the labels, in the cross entropy of P5.6 and P5.8
# the values of the tape of which `backward` returns the gradients
GRADIENTS_OF = Parameter("gradients_of", ("reached", "inputs", "all"))


def _vjp(
    submission: Submission, name: str, g: np.ndarray, y: np.ndarray, inputs: list[np.ndarray], **attributes: Any
) -> list[Any]:
    """Return the gradients of a student's rule, one for each input."""
    answer = submission.call(PROBES + "rule_gradients", submission.value(name), [g, y, *inputs], attributes)
    report = expect.mapping(answer, ("gradients", "broken", "shared"), f"the run of `{name}`")
    check_rules(report["broken"], f"`{name}`")
    gradients = report["gradients"]
    complete = isinstance(gradients, list | tuple) and len(gradients) == len(inputs)
    what, expected = f"`{name}` does not return a tuple of gradients", f"{len(inputs)} in a tuple"
    hint = "return a tuple with one gradient for each input, in their order"
    expect.true(complete, what, expected=expected, got=gradients, hint=hint)
    what, hint = f"`{name}` returns the same memory for several inputs", "who adds to one would change the other, too"
    expect.true(report["shared"] is not True, what, expected="a new array for each input", hint=hint)
    return list(gradients)  # pyright: ignore[reportArgumentType]


def _check_gradient(got: object, want: np.ndarray, name: str, what: str, **parts: str) -> None:
    """Check one gradient of a rule: an array of float32, in the shape of its input; a scalar may be a number."""
    dtype = np.float32 if want.shape else None
    expect.close(got, want, f"{what} by `{name}`", rtol=1e-3, atol=1e-4, dtype=dtype, **parts)


def _draw_attribute(submission: Submission, option: str, *values: float) -> tuple[dict[str, float], str]:
    """Draw the attribute that an operator has in this variant, if any; return it, and a description."""
    if not option:
        return {}, ""
    value = submission.rng.choice(values).item()
    return {option: value}, f", {option} {value}"


@points(1)
def relu_lets_positive_numbers_pass(submission: Submission) -> None:
    """`vjp_relu` passes the gradient on where x was {{ "positive" if relu_option in "slope" else "in range" }}."""
    # the last case leaves out the attribute, if there is one
    for shape, option in (((4, 5), submission.parameters.relu_option), ((2, 3, 2, 4), "")):
        x, g = submission.normal(*shape), submission.normal(*shape)
        attributes, given = _draw_attribute(submission, option, 0.25, 0.5)
        x.flat[0] = 0
        if option in ("cap", "threshold"):
            x.flat[1] = attributes[option]
        y, slope = _relu(x, **attributes)
        with expect.case(f"x {x.shape}, one element of which is 0{given}"):
            (got,) = _vjp(submission, "vjp_relu", g, y, [x], **attributes)
            at_zero = "slope times g" if option == "slope" else "0"
            hint = f"which elements of x have changed y? At 0 the gradient is {at_zero}"
            _check_gradient(got, g * slope, "vjp_relu", "the gradient of x", hint=hint)
    x, g = 1 + np.abs(submission.normal(3, 4)), submission.normal(3, 4)
    with expect.case(f"x {x.shape}, all of it positive"):
        (got,) = _vjp(submission, "vjp_relu", g, x.copy(), [x])
        _check_gradient(got, g, "vjp_relu", "the gradient of x", hint="the gradient, in a new array")


def _relu(
    x: np.ndarray, *, slope: float = 0.0, cap: float = np.inf, threshold: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """Return the relu of this variant, float32, and its derivative."""
    derivative = np.where((x > threshold) & (x < cap), 1, slope)
    return np.where(x >= cap, cap, x * derivative).astype(np.float32), derivative


def _check_sum(submission: Submission, option: str, a: tuple[int, ...], b: tuple[int, ...], hint: str) -> None:
    left, right = submission.normal(*a), submission.normal(*b)
    attributes, given = _draw_attribute(submission, option, 0.5, -1.5, 3.0)
    factor = attributes.get(option, 1.0)
    factors = {"alpha": (1.0, factor), "beta": (factor, 1.0)}.get(option, (factor, factor))
    y = (factors[0] * left + factors[1] * right).astype(np.float32)
    g = submission.normal(*y.shape)
    with expect.case(f"a {a}, b {b}{given}"):
        gradients = _vjp(submission, "vjp_add", g, y, [left, right], **attributes)
        for name, got, operand, times in zip("ab", gradients, (left, right), factors, strict=True):
            want = times * reference.reduced(g, operand.shape)
            _check_gradient(got, want, "vjp_add", f"the gradient of {name}", hint=hint)


@points(1)
def sums_pass_the_gradient_on(submission: Submission) -> None:
    """`vjp_add` passes the gradient on to both operands."""
    hint = "how does the sum change if one element of a does? Return new arrays"
    for shape, option in (((3, 4), submission.parameters.add_option), ((2, 3, 4, 5), "")):
        _check_sum(submission, option, shape, shape, hint)


@points(1)
def stretched_axes_are_added_up(submission: Submission) -> None:
    """`vjp_add` sums over the axes along which an operand was broadcast."""
    hint = "a gradient has its operand's shape: an element that was copied to many places gets the sum of what they got"
    for a, b in (((3, 4), (4,)), ((2, 1, 5), (3, 1)), ((2, 3, 4, 5), (3, 1, 1)), ((), (2, 2)), ((1, 3), (4, 1))):
        _check_sum(submission, submission.parameters.add_option, a, b, hint)


def _dense(submission: Submission, n: int) -> tuple[list[Any], np.ndarray, list[np.ndarray], str]:
    """Return the student's gradients of a dense layer, g, x and w, and a description of the case."""
    x, w, bias, g = (submission.normal(*shape) for shape in ((n, 3), (5, 3), (5,), (n, 5)))
    own_x, own_w, own_g, y = reference.dense_layout(submission.parameters.dense, x, w, g, x @ w.T + bias)
    given = f"x {own_x.shape}, w {own_w.shape}"
    with expect.case(given):
        got = _vjp(submission, "vjp_dense", own_g, y, [own_x, own_w, bias])
    return got, g, [x, w], given


@points(1)
def dense_gradients_are_products(submission: Submission) -> None:
    """`vjp_dense` returns the gradients of x and w."""
    product = submission.parameters.dense
    element = "x[i, n]" if product.endswith("x") else "x[n, i]"
    hint = (
        f"which elements of y does {element} change, and by how much? The shapes leave one product for each of the two"
    )
    for n in (4, 1):
        (by_x, by_w, _), g, (x, w), given = _dense(submission, n)
        want_x, want_w = reference.dense_layout(product, g @ w, g.T @ x)
        _check_gradient(by_x, want_x, "vjp_dense", "the gradient of x", given=given, hint=hint)
        _check_gradient(by_w, want_w, "vjp_dense", "the gradient of w", given=given, hint=hint)


@points(1)
def dense_bias_gets_the_whole_batch(submission: Submission) -> None:
    """`vjp_dense` sums the gradient of the bias over the batch."""
    hint = f"every {'column' if submission.parameters.dense.endswith('x') else 'row'} of y adds the same bias"
    for n in (4, 1):
        (_, _, by_bias), g, _, given = _dense(submission, n)
        _check_gradient(by_bias, g.sum(axis=0), "vjp_dense", "the gradient of bias", given=given, hint=hint)


def _conv(
    submission: Submission, stride: int, padding: int, *, biased: bool = True
) -> tuple[list[Any], tuple[np.ndarray, ...], str]:
    """Return the student's gradients of a convolution, the right ones, and a description of the case."""
    x, w, bias = submission.normal(2, 3, 7, 6), submission.normal(4, 3, 3, 2), submission.normal(4)
    attributes, more = _draw_convolution(submission)
    y = _convolution(x, w, bias if biased else None, stride, padding, **attributes)
    g = submission.normal(*y.shape)
    given = f"x {x.shape}, w {w.shape}, {'' if biased else 'no bias, '}stride {stride}, padding {padding}{more}"
    inputs = [x, w, bias] if biased else [x, w]
    with expect.case(given):
        gradients = _vjp(submission, "vjp_conv2d", g, y, inputs, stride=stride, padding=padding, **attributes)
    return gradients, _convolution_gradients(g, y, x, w, stride, padding, **attributes), given


def _draw_convolution(submission: Submission) -> tuple[dict[str, Any], str]:
    """Draw the attribute that a convolution has in this variant, if any; return it, and a description."""
    option = submission.parameters.conv_option
    if option in ("relu", "flip"):
        return {option: True}, f", {option} True"
    return _draw_attribute(submission, option, 0.5, -1.5, 3.0)


def _convolution(
    x: np.ndarray, w: np.ndarray, bias: np.ndarray | None, stride: int, padding: int, **attributes: Any
) -> np.ndarray:
    """Return the convolution of this variant, float32."""
    y = reference.conv2d(x, _applied(w, **attributes), bias, stride, padding)
    return (np.maximum(y, 0) if attributes.get("relu") else y).astype(np.float32)


def _convolution_gradients(
    g: np.ndarray, y: np.ndarray, x: np.ndarray, w: np.ndarray, stride: int, padding: int, **attributes: Any
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the gradients of `_convolution` by x, w and bias."""
    g = g * (y > 0) if attributes.get("relu") else g
    by_x, by_w, by_bias = reference.conv2d_gradients(g, x, _applied(w, **attributes), stride, padding)
    return by_x, _applied(by_w, **attributes), by_bias


def _applied(w: np.ndarray, *, relu: bool = False, scale: float = 1.0, flip: bool = False) -> np.ndarray:
    """Return the filters as this variant applies them to windows; the gradient of these, likewise, is that of w."""
    return scale * (w[:, :, ::-1, ::-1] if flip else w)


def _close(got: object, want: np.ndarray, what: str, **parts: str) -> None:
    expect.close(got, want, f"{what} by `vjp_conv2d`", rtol=1e-3, atol=1e-3, dtype=np.float32, **parts)


@points(1)
def filters_get_what_their_windows_saw(submission: Submission) -> None:
    """`vjp_conv2d` returns the gradients of w and bias."""
    (_, by_w, by_bias), (_, want_w, want_bias), given = _conv(submission, 1, 0)
    hint = "for one image this is a dense layer, whose w is [F, C * KH * KW]; all images use the same w: the sum of all"
    _close(by_w, want_w, "the gradient of w", given=given, hint=hint)
    _close(by_bias, want_bias, "the gradient of bias", given=given, hint="the sum of g over images and positions")
    x, w, g = (submission.normal(*shape) for shape in ((1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 2, 2)))
    y = _convolution(x, w, None, 1, 0)
    with expect.case(f"x {x.shape}, w {w.shape}, no bias, no stride and no padding given"):
        gradients = _vjp(submission, "vjp_conv2d", g, y, [x, w])
        want = _convolution_gradients(g, y, x, w, 1, 0)[1]
        _close(gradients[1], want, "the gradient of w", hint=hint)
    _check_without_bias(submission, _right_with_bias(submission), 1, 0)


def _right_with_bias(submission: Submission) -> list[int]:
    """Return which gradients are right with a bias, without stride and padding: the others lose points of their own."""
    gradients, right, _ = _conv(submission, 1, 0)
    return [i for i in range(len(CONV_INPUTS)) if expect.holds(_close, gradients[i], right[i], "")]


def _check_without_bias(submission: Submission, indices: list[int], stride: int, padding: int) -> None:
    """Check the gradients of x and w, those of them that are right with a bias, of a convolution without one."""
    gradients, want, given = _conv(submission, stride, padding, biased=False)
    hint = "a bias changes neither the gradient of x nor that of w"
    for i in indices:
        if i < len(gradients):
            _close(gradients[i], want[i], f"the gradient of {CONV_INPUTS[i]}", given=given, hint=hint)


@points(1)
def images_get_what_windows_gave(submission: Submission) -> None:
    """`vjp_conv2d` returns the gradient of x."""
    (by_x, _, _), (want, _, _), given = _conv(submission, 1, 0)
    hint = "first the gradient of the columns, as of a dense layer; then `scatter` brings it back to the image"
    _close(by_x, want, "the gradient of x", given=given, hint=hint)


@points(1)
def strides_and_padding_are_kept(submission: Submission) -> None:
    """`vjp_conv2d` uses stride and padding in every gradient that is right without them."""
    indices = _right_with_bias(submission)
    expect.true(bool(indices), "no gradient of `vjp_conv2d` is right, even without stride and padding")
    hint = "`columns` and `scatter` take stride and padding, both the same ones as the convolution"
    for stride, padding in ((2, 1), (2, 0), (1, 1), (3, 0)):  # with 3, no window reaches the last row and column
        gradients, want, given = _conv(submission, stride, padding)
        for i in indices:
            _close(gradients[i], want[i], f"the gradient of {CONV_INPUTS[i]}", given=given, hint=hint)
    if expect.holds(_check_without_bias, submission, indices, 1, 0):  # otherwise it has lost points above already
        _check_without_bias(submission, indices, 2, 1)


def _check_cross_entropy(
    submission: Submission, examples: int, g: float, hint: str, offset: float = 0.0, classes: int = 6
) -> None:
    logits = 2 * submission.normal(examples, classes)
    logits[:, ::2] += np.float32(offset)
    labels = submission.rng.integers(0, classes, examples)
    smoothing = submission.parameters.smoothing
    y = np.asarray(reference.cross_entropy(logits, labels, smoothing), np.float32)
    around = f" from {logits.min():.0f} to {logits.max():.0f}" if offset else ""
    with expect.case(f"logits {logits.shape}{around}, g = {g:g}"):
        got, by_labels = _vjp(submission, "vjp_cross_entropy", np.float32(g), y, [logits, labels])  # pyright: ignore[reportArgumentType]
        want = g * reference.cross_entropy_gradient(logits, labels, smoothing)
        _check_gradient(got, want, "vjp_cross_entropy", "the gradient of logits", hint=hint)
        what = "the second gradient by `vjp_cross_entropy` is not None"
        expect.true(by_labels is None, what, expected="None: integers have no derivative", got=by_labels)


@points(1)
def logits_are_pulled_to_the_label(submission: Submission) -> None:
    """`vjp_cross_entropy` returns the gradient of one example, however large the logits."""
    chosen = "sum(t * logits)" if submission.parameters.smoothing else "logits[label]"
    hint = f"differentiate log(sum(exp(logits))) - {chosen}: what is the first part's derivative called?"
    for offset in (0.0, 0.0, 900.0, 1e5):
        hint = "as in P5.2: e^900 overflows" if offset else hint
        _check_cross_entropy(submission, 1, 1.0, hint, offset)


@points(1)
def the_mean_shares_the_gradient(submission: Submission) -> None:
    """`vjp_cross_entropy` divides g among the examples of a batch, as the loss is their mean."""
    for examples, g, classes in ((4, 1.0, 6), (3, 2.5, 5)):
        hint = "y is a mean over N examples, and the loss changes by g for each unit of y"
        _check_cross_entropy(submission, examples, g, hint, classes=classes)


def _check_backward(
    submission: Submission, values: list[np.ndarray], entries: list[list[Any]], want: dict[int, np.ndarray]
) -> None:
    answer = submission.call(PROBES + "backward_result", submission.value("backward"), values, entries)
    report = expect.mapping(answer, ("gradients", "changed"), "what `backward` does")
    gradients: dict[Any, Any] = dict(expect.mapping(report["gradients"], (), "what `backward` returns"))
    want = _returned(submission.parameters.gradients_of, values, entries, want)
    for number, gradient in want.items():
        what, got = f"there is no gradient of value {number} from `backward`", str(sorted(gradients, key=str))
        expect.true(number in gradients, what, expected=f"the keys {sorted(want)}", got=got)
        what = f"the gradient of value {number} by `backward`"
        expect.close(gradients[number], gradient, what, dtype=np.float32 if gradient.shape else None)
    more = [key for key, value in gradients.items() if key not in want and (value is None or np.any(value))]
    what = "`backward` returns gradients of values that the last one does not depend on"
    if submission.parameters.gradients_of == "inputs":
        what = "`backward` returns gradients of others than the inputs that the last value depends on"
    expect.true(not more, what, expected=f"the keys {sorted(want)}", got=str(sorted(more, key=str)))
    expect.true(report["changed"] is False, "`backward` changes the tape", expected="the same values and entries")


def _returned(
    which: str, values: list[np.ndarray], entries: list[list[Any]], gradients: dict[int, np.ndarray]
) -> dict[int, np.ndarray]:
    """Return what `backward` has to return in this variant, given the gradients of all values that are reached."""
    if which == "all":
        return {number: np.zeros_like(value) for number, value in enumerate(values)} | gradients
    computed = [output for _, _, output, _ in entries] if which == "inputs" else []
    return {number: gradient for number, gradient in gradients.items() if number not in computed}


def _scalar(value: object) -> np.ndarray:
    return np.asarray(value, np.float32)


@points(1)
def the_tape_is_read_backwards(submission: Submission) -> None:
    """`backward` propagates the gradient from the last value back to the first, through the rules."""
    weights, x, other = (submission.normal(6) for _ in range(3))
    scaled = np.float32(1.5) * x
    bent = np.tanh(scaled)
    values = [weights, x, scaled, other, np.tanh(other), bent, _scalar((bent * weights).sum())]
    entries = [
        ["scale", [1], 2, {"factor": 1.5}],
        ["tanh", [3], 4, {}],
        ["tanh", [2], 5, {}],
        ["weighted_sum", [5, 0], 6, {}],
    ]
    by_scaled = weights * (1 - bent**2)
    want = {6: _scalar(1.0), 5: weights, 2: by_scaled, 1: np.float32(1.5) * by_scaled}
    given = (
        "2 = scale 1 by 1.5, 4 = tanh 3, 5 = tanh 2, 6 = weighted_sum of 5 by 0, whose gradient is None; 4 is not used"
    )
    hint = "start at the last value, whose gradient is 1; an entry whose output has no gradient is passed over"
    with expect.case(given, hint):
        _check_backward(submission, values, entries, want)
    values = [x, np.tanh(x), _scalar(submission.normal())]
    with expect.case("1 = tanh 0, and the last value, 2, is an input", "the last value depends on itself alone"):
        _check_backward(submission, values, [["tanh", [0], 1, {}]], {2: _scalar(1.0)})


@points(1)
def what_is_used_twice_gets_both(submission: Submission) -> None:
    """`backward` adds up the gradients of a value that is used more than once."""
    for size in (5, 3):
        weights, x = submission.normal(size), submission.normal(size)
        bent = np.tanh(x)
        product, total = x * bent, x * bent + x
        values = [weights, x, bent, product, total, _scalar((total * weights).sum())]
        entries = [
            ["tanh", [1], 2, {}],
            ["mul", [1, 2], 3, {}],
            ["add", [3, 1], 4, {}],
            ["weighted_sum", [4, 0], 5, {}],
        ]
        want = {5: _scalar(1.0), 4: weights, 3: weights, 2: weights * x, 1: weights * (bent + 1 + x * (1 - bent**2))}
        given = "2 = tanh 1, 3 = 1 * 2, 4 = 3 + 1, 5 = weighted_sum of 4 by 0"
        hint = "where a gradient exists already, the sum of both, as a new array: += would change a shared one"
        with expect.case(given, hint):
            _check_backward(submission, values, entries, want)
    weights, x = submission.normal(4), submission.normal(4)
    values = [weights, x, x * x, _scalar((x * x * weights).sum())]
    entries = [["mul", [1, 1], 2, {}], ["weighted_sum", [2, 0], 3, {}]]
    with expect.case("2 = 1 * 1, 3 = weighted_sum of 2 by 0", "one entry can read a value twice: both parts count"):
        _check_backward(submission, values, entries, {3: _scalar(1.0), 2: weights, 1: 2 * x * weights})


TASKS = (
    Task(
        "P5.6",
        "The tape",
        checks=(
            relu_lets_positive_numbers_pass,
            sums_pass_the_gradient_on,
            stretched_axes_are_added_up,
            dense_gradients_are_products,
            dense_bias_gets_the_whole_batch,
            filters_get_what_their_windows_saw,
            images_get_what_windows_gave,
            strides_and_padding_are_kept,
            logits_are_pulled_to_the_label,
            the_mean_shares_the_gradient,
            the_tape_is_read_backwards,
            what_is_used_twice_gets_both,
        ),
        libraries=TAPE,
        varies=(RELU_OPTION, ADD_OPTION, CONV_OPTION, SMOOTHING, GRADIENTS_OF),
        minutes=60,
        builds_on=("P5.2", "P5.5"),
    ),
)
