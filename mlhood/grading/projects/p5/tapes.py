"""Checks of P5.6: rules for vector-Jacobian products, and a tape that is replayed backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes_numpy:"


def _vjp(
    submission: Submission, name: str, g: np.ndarray, y: np.ndarray, inputs: list[np.ndarray], **attributes: Any
) -> list[Any]:
    """Return the gradients of a student's rule, one for each input."""
    gradients = submission.call(name, g, y, *inputs, **attributes)
    complete = isinstance(gradients, list | tuple) and len(gradients) == len(inputs)
    what, expected = f"`{name}` does not return a tuple of gradients", f"{len(inputs)} in a tuple"
    hint = "return a tuple with one gradient for each input, in their order"
    expect.true(complete, what, expected=expected, got=gradients, hint=hint)
    return list(gradients)


def _check_gradient(got: object, want: np.ndarray, name: str, what: str, **parts: str) -> None:
    """Check one gradient of a rule: an array of float32, in the shape of its input; a scalar may be a number."""
    dtype = np.float32 if want.shape else None
    expect.close(got, want, f"{what} by `{name}`", rtol=1e-3, atol=1e-4, dtype=dtype, **parts)


@points(1)
def relu_lets_positive_numbers_pass(submission: Submission) -> None:
    """`vjp_relu` passes the gradient on where x was positive."""
    for shape in ((4, 5), (2, 3, 2, 4)):
        x, g = submission.normal(*shape), submission.normal(*shape)
        x.flat[0] = 0
        with expect.case(f"x {x.shape}, one element of which is 0"):
            (got,) = _vjp(submission, "vjp_relu", g, np.maximum(x, 0), [x])
            hint = "which elements of x have changed y? At 0 the gradient is 0"
            _check_gradient(got, g * (x > 0), "vjp_relu", "the gradient of x", hint=hint)


def _check_sum(submission: Submission, a: tuple[int, ...], b: tuple[int, ...], hint: str) -> None:
    left, right = submission.normal(*a), submission.normal(*b)
    y = left + right
    g = submission.normal(*y.shape)
    with expect.case(f"a {a}, b {b}"):
        gradients = _vjp(submission, "vjp_add", g, y, [left, right])
        for name, got, operand in zip("ab", gradients, (left, right), strict=True):
            want = reference.reduced(g, operand.shape)
            _check_gradient(got, want, "vjp_add", f"the gradient of {name}", hint=hint)


@points(1)
def sums_pass_the_gradient_on(submission: Submission) -> None:
    """`vjp_add` passes the gradient on to both operands."""
    for shape in ((3, 4), (2, 3, 4, 5)):
        _check_sum(submission, shape, shape, "how does the sum change if one element of a does? Return new arrays")


@points(1)
def stretched_axes_are_added_up(submission: Submission) -> None:
    """`vjp_add` sums over the axes along which an operand was broadcast."""
    hint = "a gradient has its operand's shape: an element that was copied to many places gets the sum of what they got"
    for a, b in (((3, 4), (4,)), ((2, 1, 5), (3, 1)), ((2, 3, 4, 5), (3, 1, 1)), ((), (2, 2)), ((1, 3), (4, 1))):
        _check_sum(submission, a, b, hint)


def _dense(submission: Submission, n: int) -> tuple[list[Any], np.ndarray, list[np.ndarray], str]:
    """Return the student's gradients of a dense layer, g, x and w, and a description of the case."""
    x, w, bias, g = (submission.normal(*shape) for shape in ((n, 3), (5, 3), (5,), (n, 5)))
    given = f"x {x.shape}, w {w.shape}"
    with expect.case(given):
        return _vjp(submission, "vjp_dense", g, x @ w.T + bias, [x, w, bias]), g, [x, w], given


@points(1)
def dense_gradients_are_products(submission: Submission) -> None:
    """`vjp_dense` returns the gradients of x and w."""
    hint = "which elements of y does x[n, i] change, and by how much? The shapes leave one product for each of the two"
    for n in (4, 1):
        (by_x, by_w, _), g, (x, w), given = _dense(submission, n)
        _check_gradient(by_x, g @ w, "vjp_dense", "the gradient of x", given=given, hint=hint)
        _check_gradient(by_w, g.T @ x, "vjp_dense", "the gradient of w", given=given, hint=hint)


@points(1)
def dense_bias_gets_the_whole_batch(submission: Submission) -> None:
    """`vjp_dense` sums the gradient of the bias over the batch."""
    hint = "every row of y adds the same bias"
    for n in (4, 1):
        (_, _, by_bias), g, _, given = _dense(submission, n)
        _check_gradient(by_bias, g.sum(axis=0), "vjp_dense", "the gradient of bias", given=given, hint=hint)


def _conv(submission: Submission, stride: int, padding: int) -> tuple[list[Any], tuple[np.ndarray, ...], str]:
    """Return the student's gradients of a convolution, the right ones, and a description of the case."""
    x, w, bias = submission.normal(2, 3, 7, 6), submission.normal(4, 3, 3, 2), submission.normal(4)
    y = reference.conv2d(x, w, bias, stride, padding).astype(np.float32)
    g = submission.normal(*y.shape)
    given = f"x {x.shape}, w {w.shape}, stride {stride}, padding {padding}"
    with expect.case(given):
        gradients = _vjp(submission, "vjp_conv2d", g, y, [x, w, bias], stride=stride, padding=padding)
    return gradients, reference.conv2d_gradients(g, x, w, stride, padding), given


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
    y = reference.conv2d(x, w).astype(np.float32)
    with expect.case(f"x {x.shape}, w {w.shape}, no bias, no stride and no padding given"):
        gradients = _vjp(submission, "vjp_conv2d", g, y, [x, w])
        _close(gradients[1], reference.conv2d_gradients(g, x, w, 1, 0)[1], "the gradient of w", hint=hint)


@points(1)
def images_get_what_windows_gave(submission: Submission) -> None:
    """`vjp_conv2d` returns the gradient of x."""
    (by_x, _, _), (want, _, _), given = _conv(submission, 1, 0)
    hint = "first the gradient of the columns, as of a dense layer; then `scatter` brings it back to the image"
    _close(by_x, want, "the gradient of x", given=given, hint=hint)


@points(1)
def strides_and_padding_are_kept(submission: Submission) -> None:
    """`vjp_conv2d` uses stride and padding in every gradient that is right without them."""
    gradients, right, _ = _conv(submission, 1, 0)
    indices = [i for i in range(3) if _is_close(gradients[i], right[i])]  # the others have lost points above already
    expect.true(bool(indices), "no gradient of `vjp_conv2d` is right, even without stride and padding")
    hint = "`columns` and `scatter` take stride and padding, both the same ones as the convolution"
    for stride, padding in ((2, 1), (2, 0), (1, 1)):
        gradients, want, given = _conv(submission, stride, padding)
        for i in indices:
            _close(gradients[i], want[i], f"the gradient of {('x', 'w', 'bias')[i]}", given=given, hint=hint)


def _is_close(got: object, want: np.ndarray) -> bool:
    try:
        _close(got, want, "")
    except expect.CheckFailed:
        return False
    return True


def _check_cross_entropy(
    submission: Submission, examples: int, g: float, hint: str, offset: float = 0.0, classes: int = 6
) -> None:
    logits = 2 * submission.normal(examples, classes)
    logits[:, ::2] += np.float32(offset)
    labels = submission.rng.integers(0, classes, examples)
    y = np.asarray(reference.cross_entropy(logits, labels), np.float32)
    around = f" from {logits.min():.0f} to {logits.max():.0f}" if offset else ""
    with expect.case(f"logits {logits.shape}{around}, g = {g:g}"):
        got, by_labels = _vjp(submission, "vjp_cross_entropy", np.float32(g), y, [logits, labels])  # pyright: ignore[reportArgumentType]
        want = g * reference.cross_entropy_gradient(logits, labels)
        _check_gradient(got, want, "vjp_cross_entropy", "the gradient of logits", hint=hint)
        what = "the second gradient by `vjp_cross_entropy` is not None"
        expect.true(by_labels is None, what, expected="None: integers have no derivative", got=by_labels)


@points(1)
def logits_are_pulled_to_the_label(submission: Submission) -> None:
    """`vjp_cross_entropy` returns the gradient of one example, however large the logits."""
    hint = "differentiate log(sum(exp(logits))) - logits[label]: what is the first part's derivative called?"
    for offset in (0.0, 0.0, 900.0):
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
    for number, gradient in want.items():
        what, got = f"there is no gradient of value {number} from `backward`", str(sorted(gradients, key=str))
        expect.true(number in gradients, what, expected=f"the keys {sorted(want)}", got=got)
        what = f"the gradient of value {number} by `backward`"
        expect.close(gradients[number], gradient, what, dtype=np.float32 if gradient.shape else None)
    more = [key for key, value in gradients.items() if key not in want and (value is None or np.any(value))]
    what = "`backward` returns gradients of values that the last one does not depend on"
    expect.true(not more, what, expected=f"the keys {sorted(want)}", got=str(sorted(more, key=str)))
    expect.true(report["changed"] is False, "`backward` changes the tape", expected="the same values and entries")


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


# libraries that differentiate; `columns` and `scatter` may be used
RULES = (
    "jax",
    "torch",
    "mlhood.jaxlab.autodiff.rules",
    "mlhood.jaxlab.autodiff.RULES",
    "mlhood.jaxlab.autodiff.backward",
    "mlhood.jaxlab.autodiff.tape.backward",
    "mlhood.jaxlab.autodiff.grad",
    "mlhood.jaxlab.autodiff.value_and_grad",
)


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
        forbidden=RULES,
        minutes=60,
        builds_on=("P5.2", "P5.5"),
    ),
)
