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
    gradients = submission.call(name, g.copy(), y.copy(), *(array.copy() for array in inputs), **attributes)
    complete = isinstance(gradients, list | tuple) and len(gradients) == len(inputs)
    what, expected = f"`{name}` does not return a tuple of gradients", f"{len(inputs)} in a tuple"
    hint = "return a tuple with one gradient for each input, in their order"
    expect.true(complete, what, expected=expected, got=gradients, hint=hint)
    return list(gradients)


@points(1)
def relu_lets_positive_numbers_pass(submission: Submission) -> None:
    """`vjp_relu` passes the gradient on where x was positive."""
    x, g = submission.normal(4, 5), submission.normal(4, 5)
    with expect.case(f"x {x.shape}"):
        (got,) = _vjp(submission, "vjp_relu", g, np.maximum(x, 0), [x])
        expect.close(got, g * (x > 0), "the gradient of x", hint="g where x > 0, and 0 elsewhere")


def _check_sum(submission: Submission, a: tuple[int, ...], b: tuple[int, ...], hint: str) -> None:
    left, right = submission.normal(*a), submission.normal(*b)
    y = left + right
    g = submission.normal(*y.shape)
    with expect.case(f"a {a}, b {b}"):
        gradients = _vjp(submission, "vjp_add", g, y, [left, right])
        for name, got, operand in zip("ab", gradients, (left, right), strict=True):
            expect.close(got, reference.reduced(g, operand.shape), f"the gradient of {name}", hint=hint)


@points(1)
def sums_pass_the_gradient_on(submission: Submission) -> None:
    """`vjp_add` passes the gradient on to both operands."""
    for shape in ((3, 4), (2, 3, 4, 5)):
        _check_sum(submission, shape, shape, "g and g")


@points(1)
def stretched_axes_are_added_up(submission: Submission) -> None:
    """`vjp_add` sums over the axes along which an operand was broadcast."""
    hint = "a gradient has its operand's shape: sum over new leading axes, and, with keepdims, over axes of size 1"
    for a, b in (((3, 4), (4,)), ((2, 1, 5), (3, 1)), ((2, 3, 4, 5), (3, 1, 1)), ((), (2, 2))):
        _check_sum(submission, a, b, hint)


def _dense(submission: Submission) -> tuple[list[Any], np.ndarray, list[np.ndarray], str]:
    """Return the student's gradients of a dense layer, g, x and w, and a description of the case."""
    x, w, bias, g = (submission.normal(*shape) for shape in ((4, 3), (5, 3), (5,), (4, 5)))
    given = f"x {x.shape}, w {w.shape}"
    with expect.case(given):
        return _vjp(submission, "vjp_dense", g, x @ w.T + bias, [x, w, bias]), g, [x, w], given


@points(1)
def dense_gradients_are_products(submission: Submission) -> None:
    """`vjp_dense` returns the gradients of x and w."""
    (by_x, by_w, _), g, (x, w), given = _dense(submission)
    hint = "y = x @ w.T + bias with w [out, in]: the gradient of x is g @ w, that of w is g.T @ x"
    expect.close(by_x, g @ w, "the gradient of x", given=given, hint=hint)
    expect.close(by_w, g.T @ x, "the gradient of w", given=given, hint=hint)


@points(1)
def dense_bias_gets_the_whole_batch(submission: Submission) -> None:
    """`vjp_dense` sums the gradient of the bias over the batch."""
    (_, _, by_bias), g, _, given = _dense(submission)
    hint = "every row of y adds the same bias"
    expect.close(by_bias, g.sum(axis=0), "the gradient of bias", given=given, hint=hint)


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
    expect.close(got, want, what, rtol=1e-3, atol=1e-3, **parts)


@points(1)
def filters_get_what_their_windows_saw(submission: Submission) -> None:
    """`vjp_conv2d` returns the gradients of w and bias."""
    (_, by_w, by_bias), (_, want_w, want_bias), given = _conv(submission, 1, 0)
    hint = "y[n] = w.reshape(F, -1) @ columns[n], so the gradient of w is the sum of g[n].reshape(F, -1) @ columns[n].T"
    _close(by_w, want_w, "the gradient of w", given=given, hint=hint)
    _close(by_bias, want_bias, "the gradient of bias", given=given, hint="the sum of g over images and positions")
    x, w, g = (submission.normal(*shape) for shape in ((1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 2, 2)))
    y = reference.conv2d(x, w).astype(np.float32)
    with expect.case(f"x {x.shape}, w {w.shape}, no bias"):
        gradients = _vjp(submission, "vjp_conv2d", g, y, [x, w], stride=1, padding=0)
        _close(gradients[1], reference.conv2d_gradients(g, x, w, 1, 0)[1], "the gradient of w", hint=hint)


@points(1)
def images_get_what_windows_gave(submission: Submission) -> None:
    """`vjp_conv2d` returns the gradient of x."""
    (by_x, _, _), (want, _, _), given = _conv(submission, 1, 0)
    hint = "w.reshape(F, -1).T @ g[n].reshape(F, -1) is the gradient of the columns; `scatter` sums it into the image"
    _close(by_x, want, "the gradient of x", given=given, hint=hint)


@points(1)
def strides_and_padding_are_kept(submission: Submission) -> None:
    """`vjp_conv2d` uses stride and padding in every gradient that is right without them."""
    gradients, right, _ = _conv(submission, 1, 0)
    indices = [i for i in range(3) if _is_close(gradients[i], right[i])]  # the others have lost points above already
    expect.true(bool(indices), "no gradient is right, even without stride and padding")
    hint = (
        "columns(x, kernel, stride, padding) and scatter(columns, x.shape, kernel, stride, padding): the same in both"
    )
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


def _check_cross_entropy(submission: Submission, examples: int, g: float, hint: str) -> None:
    logits = 2 * submission.normal(examples, 6)
    labels = submission.rng.integers(0, 6, examples)
    y = np.asarray(reference.cross_entropy(logits, labels), np.float32)
    with expect.case(f"logits {logits.shape}, g = {g:g}"):
        got, _ = _vjp(submission, "vjp_cross_entropy", np.float32(g), y, [logits, labels])  # pyright: ignore[reportArgumentType]
        want = g * reference.cross_entropy_gradient(logits, labels)
        expect.close(got, want, "the gradient of logits", hint=hint)


@points(1)
def logits_are_pulled_to_the_label(submission: Submission) -> None:
    """`vjp_cross_entropy` is softmax minus one at the label."""
    for _ in range(2):
        _check_cross_entropy(submission, 1, 1.0, "softmax(logits), minus 1 at the label")


@points(1)
def the_mean_shares_the_gradient(submission: Submission) -> None:
    """`vjp_cross_entropy` divides g among the examples of a batch, as the loss is their mean."""
    for examples, g in ((4, 1.0), (3, 2.5)):
        _check_cross_entropy(submission, examples, g, "(softmax - one-hot) / N * g")


def _check_backward(
    submission: Submission, values: list[np.ndarray], entries: list[list[Any]], want: dict[int, np.ndarray]
) -> None:
    answer = submission.call(PROBES + "backward_result", submission.value("backward"), values, entries)
    gradients: dict[Any, Any] = dict(expect.mapping(answer, (), "what `backward` returns"))
    for number, gradient in want.items():
        what, got = f"there is no gradient of value {number}", str(sorted(gradients, key=str))
        expect.true(number in gradients, what, expected=f"the keys {sorted(want)}", got=got)
        expect.close(gradients[number], gradient, f"the gradient of value {number}")


@points(1)
def the_tape_is_read_backwards(submission: Submission) -> None:
    """`backward` propagates the gradient from the last value back to the first, through the rules."""
    weights, x = submission.normal(6), submission.normal(6)
    scaled = np.float32(1.5) * x
    bent = np.tanh(scaled)
    values = [weights, x, scaled, bent, np.asarray((bent * weights).sum())]
    entries = [["scale", [1], 2, {"factor": 1.5}], ["tanh", [2], 3, {}], ["weighted_sum", [3, 0], 4, {}]]
    by_scaled = weights * (1 - bent**2)
    want = {4: np.asarray(1.0), 3: weights, 2: by_scaled, 1: 1.5 * by_scaled}
    given = "2 = scale 1 by 1.5, 3 = tanh 2, 4 = weighted_sum of 3 by 0, whose gradient is None"
    hint = "the last value's gradient is 1; entry by entry from the end: rules[op](g, y, *inputs, **attributes)"
    with expect.case(given, hint):
        _check_backward(submission, values, entries, want)


@points(1)
def what_is_used_twice_gets_both(submission: Submission) -> None:
    """`backward` adds up the gradients of a value that is used more than once."""
    weights, x = submission.normal(5), submission.normal(5)
    bent = np.tanh(x)
    product, total = x * bent, x * bent + x
    values = [weights, x, bent, product, total, np.asarray((total * weights).sum())]
    entries = [["tanh", [1], 2, {}], ["mul", [1, 2], 3, {}], ["add", [3, 1], 4, {}], ["weighted_sum", [4, 0], 5, {}]]
    want = {4: weights, 3: weights, 2: weights * x, 1: weights * (bent + 1 + x * (1 - bent**2))}
    given = "2 = tanh 1, 3 = 1 * 2, 4 = 3 + 1, 5 = weighted_sum of 4 by 0"
    hint = "add to a gradient that exists already with g[number] = g[number] + gradient; += would change a shared array"
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
    ),
)
