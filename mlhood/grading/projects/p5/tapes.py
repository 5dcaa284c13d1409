"""Checks of P5.6: rules of vector-Jacobian products, and a tape that is read backwards."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5 import reference

PROBES = "mlhood.grading.projects.p5.probes_numpy:"


def _pulled(
    submission: Submission, name: str, g: np.ndarray, y: np.ndarray, inputs: list[np.ndarray], given: str,
    **attributes: Any,
) -> list[Any]:  # fmt: skip
    """What a rule returns: as many gradients as there are inputs."""
    with expect.case(given):
        told = submission.call(name, g.copy(), y.copy(), *(one.copy() for one in inputs), **attributes)
    hint = "a tuple with one gradient for each input, in their order"
    many = isinstance(told, list | tuple) and len(told) == len(inputs)
    expect.true(many, f"`{name}` returns no tuple of gradients", expected=f"{len(inputs)} in a tuple", got=told,
                given=given, hint=hint)  # fmt: skip
    return list(told)


@points(1)
def relu_lets_positive_numbers_pass(submission: Submission) -> None:
    """`vjp_relu` passes the gradient on where x was positive."""
    x, g = submission.normal(4, 5), submission.normal(4, 5)
    (got,) = _pulled(submission, "vjp_relu", g, np.maximum(x, 0), [x], f"x {x.shape}")
    expect.close(got, g * (x > 0), "the gradient by x", given=f"x {x.shape}", hint="g where x > 0, and 0 elsewhere")


def _sum_rule(submission: Submission, a: tuple[int, ...], b: tuple[int, ...], hint: str) -> None:
    left, right = submission.normal(*a), submission.normal(*b)
    y = left + right
    g, given = submission.normal(*y.shape), f"a {a}, b {b}"
    found = _pulled(submission, "vjp_add", g, y, [left, right], given)
    for name, got, one in zip("ab", found, (left, right), strict=True):
        expect.close(got, reference.reduced(g, one.shape), f"the gradient by {name}", given=given, hint=hint)


@points(1)
def sums_pass_the_gradient_on(submission: Submission) -> None:
    """`vjp_add` passes the gradient on to both."""
    for shape in ((3, 4), (2, 3, 4, 5)):
        _sum_rule(submission, shape, shape, "g and g")


@points(1)
def stretched_axes_are_added_up(submission: Submission) -> None:
    """`vjp_add` adds up over axes along which an input was stretched."""
    hint = "a gradient has its input's shape: sum over axes that were added in front, and, kept, over those of size 1"
    for a, b in (((3, 4), (4,)), ((2, 1, 5), (3, 1)), ((2, 3, 4, 5), (3, 1, 1)), ((), (2, 2))):
        _sum_rule(submission, a, b, hint)


def _dense(submission: Submission) -> tuple[list[Any], np.ndarray, list[np.ndarray], str]:
    """What `vjp_dense` returns, g, what the rule was about, and that in words."""
    x, w, bias, g = (submission.normal(*shape) for shape in ((4, 3), (5, 3), (5,), (4, 5)))
    given = f"x {x.shape}, w {w.shape}"
    return _pulled(submission, "vjp_dense", g, x @ w.T + bias, [x, w, bias], given), g, [x, w], given


@points(1)
def dense_gradients_are_products(submission: Submission) -> None:
    """`vjp_dense` gives the gradients by x and w."""
    (by_x, by_w, _), g, (x, w), given = _dense(submission)
    hint = "y = x @ w.T + bias with w [out, in]: by x it is g @ w, by w it is g.T @ x"
    expect.close(by_x, g @ w, "the gradient by x", given=given, hint=hint)
    expect.close(by_w, g.T @ x, "the gradient by w", given=given, hint=hint)


@points(1)
def dense_bias_gets_the_whole_batch(submission: Submission) -> None:
    """`vjp_dense` adds up the bias' gradient over the batch."""
    (_, _, by_bias), g, _, given = _dense(submission)
    expect.close(by_bias, g.sum(axis=0), "the gradient by bias", given=given, hint="every row of y has the same bias")


def _conv(submission: Submission, stride: int, padding: int) -> tuple[list[Any], tuple[np.ndarray, ...], str]:
    """What `vjp_conv2d` returns, what it should, and for which sizes."""
    x, w, bias = submission.normal(2, 3, 7, 6), submission.normal(4, 3, 3, 2), submission.normal(4)
    y = reference.conv2d(x, w, bias, stride, padding).astype(np.float32)
    g = submission.normal(*y.shape)
    given = f"x {x.shape}, w {w.shape}, stride {stride}, padding {padding}"
    found = _pulled(submission, "vjp_conv2d", g, y, [x, w, bias], given, stride=stride, padding=padding)
    return found, reference.conv2d_gradients(g, x, w, stride, padding), given


@points(1)
def filters_get_what_their_windows_saw(submission: Submission) -> None:
    """`vjp_conv2d` gives the gradients by w and bias."""
    (_, by_w, by_bias), (_, want_w, want_bias), given = _conv(submission, 1, 0)
    hint = "y[n] = w.reshape(F, -1) @ columns[n]: by w it is the sum of g[n].reshape(F, -1) @ columns[n].T"
    expect.close(by_w, want_w, "the gradient by w", rtol=1e-3, atol=1e-3, given=given, hint=hint)
    expect.close(by_bias, want_bias, "the gradient by bias", rtol=1e-3, atol=1e-3, given=given,
                 hint="the sum of g over images and places")  # fmt: skip
    x, w, g = (submission.normal(*shape) for shape in ((1, 2, 4, 4), (3, 2, 3, 3), (1, 3, 2, 2)))
    y = reference.conv2d(x, w).astype(np.float32)
    given = f"x {x.shape}, w {w.shape}, no bias"
    found = _pulled(submission, "vjp_conv2d", g, y, [x, w], given, stride=1, padding=0)
    expect.close(found[1], reference.conv2d_gradients(g, x, w, 1, 0)[1], "the gradient by w", rtol=1e-3, atol=1e-3,
                 given=given, hint=hint)  # fmt: skip


@points(1)
def images_get_what_windows_gave(submission: Submission) -> None:
    """`vjp_conv2d` gives the gradient by x."""
    (by_x, _, _), (want, _, _), given = _conv(submission, 1, 0)
    hint = "w.reshape(F, -1).T @ g[n].reshape(F, -1) are the gradients of the columns, which `scatter` adds up"
    expect.close(by_x, want, "the gradient by x", rtol=1e-3, atol=1e-3, given=given, hint=hint)


@points(1)
def strides_and_padding_are_kept(submission: Submission) -> None:
    """`vjp_conv2d` takes stride and padding, in all gradients that are right without."""
    plain, right, _ = _conv(submission, 1, 0)
    judged = [place for place in range(3) if _is(plain[place], right[place])]  # the others cost points above already
    expect.true(bool(judged), "no gradient is right, even without stride and padding")
    hint = "columns(x, kernel, stride, padding) and scatter(columns, x.shape, kernel, stride, padding): the same both"
    for stride, padding in ((2, 1), (2, 0), (1, 1)):
        found, want, given = _conv(submission, stride, padding)
        for place in judged:
            what = f"the gradient by {('x', 'w', 'bias')[place]}"
            expect.close(found[place], want[place], what, rtol=1e-3, atol=1e-3, given=given, hint=hint)


def _is(got: object, want: np.ndarray) -> bool:
    try:
        expect.close(got, want, "", rtol=1e-3, atol=1e-3)
    except expect.CheckFailed:
        return False
    return True


def _entropy(submission: Submission, examples: int, g: float, hint: str) -> None:
    logits = 2 * submission.normal(examples, 6)
    labels = submission.rng.integers(0, 6, examples)
    y = np.asarray(reference.cross_entropy(logits, labels), np.float32)
    given = f"logits {logits.shape}, g = {g:g}"
    got, _ = _pulled(submission, "vjp_cross_entropy", np.float32(g), y, [logits, labels], given)  # pyright: ignore[reportArgumentType]
    want = g * reference.cross_entropy_gradient(logits, labels)
    expect.close(got, want, "the gradient by logits", given=given, hint=hint)


@points(1)
def logits_are_pulled_to_the_label(submission: Submission) -> None:
    """`vjp_cross_entropy` is softmax minus one at the label."""
    for _ in range(2):
        _entropy(submission, 1, 1.0, "softmax(logits), less 1 at the label")


@points(1)
def the_mean_shares_the_gradient(submission: Submission) -> None:
    """`vjp_cross_entropy` shares g among the examples of a batch, as the loss is their mean."""
    hint = "(softmax - one-hot) / N * g"
    for examples, g in ((4, 1.0), (3, 2.5)):
        _entropy(submission, examples, g, hint)


def _backed(submission: Submission, values: list[np.ndarray], entries: list[list[Any]], given: str) -> dict[Any, Any]:
    with expect.case(given):
        told = submission.call(PROBES + "backed", submission.value("backward"), values, entries)
    return dict(expect.mapping(told, (), "what `backward` returns", given=given))


def _gradients_are(found: dict[Any, Any], want: dict[int, np.ndarray], given: str, hint: str) -> None:
    for number, gradient in want.items():
        expect.true(number in found, f"there is no gradient of value {number}", expected=f"the keys {sorted(want)}",
                    got=str(sorted(found, key=str)), given=given, hint=hint)  # fmt: skip
        expect.close(found[number], gradient, f"the gradient by value {number}", given=given, hint=hint)


@points(1)
def the_tape_is_read_backwards(submission: Submission) -> None:
    """`backward` carries the gradient from the last value back to the first, through the rules."""
    weights, x = submission.normal(6), submission.normal(6)
    scaled = np.float32(1.5) * x
    bent = np.tanh(scaled)
    values = [weights, x, scaled, bent, np.asarray((bent * weights).sum())]
    entries = [["scale", [1], 2, {"factor": 1.5}], ["tanh", [2], 3, {}], ["weighted_sum", [3, 0], 4, {}]]
    given = "2 = scale 1 by 1.5, 3 = tanh 2, 4 = weighted_sum of 3 by 0, whose gradient is None"
    hint = "the last value's gradient is 1; entry by entry from the end: rules[op](g, y, *inputs, **attributes)"
    found = _backed(submission, values, entries, given)
    by_scaled = weights * (1 - bent**2)
    _gradients_are(found, {4: np.asarray(1.0), 3: weights, 2: by_scaled, 1: 1.5 * by_scaled}, given, hint)


@points(1)
def what_is_used_twice_gets_both(submission: Submission) -> None:
    """`backward` adds up the gradients of a value that is used more than once."""
    weights, x = submission.normal(5), submission.normal(5)
    bent = np.tanh(x)
    product, total = x * bent, x * bent + x
    values = [weights, x, bent, product, total, np.asarray((total * weights).sum())]
    entries = [["tanh", [1], 2, {}], ["mul", [1, 2], 3, {}], ["add", [3, 1], 4, {}], ["weighted_sum", [4, 0], 5, {}]]
    given = "2 = tanh 1, 3 = 1 * 2, 4 = 3 + 1, 5 = weighted_sum of 4 by 0"
    hint = "found[number] = found[number] + gradient where there is one already: += would write into an array of others"
    found = _backed(submission, values, entries, given)
    by_x = weights * (bent + 1 + x * (1 - bent**2))
    _gradients_are(found, {4: weights, 3: weights, 2: weights * x, 1: by_x}, given, hint)


# who differentiates already; `columns` and `scatter` may be used
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
