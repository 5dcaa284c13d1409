"""Checks of P5.6: rules for vector-Jacobian products, and a tape that is replayed backwards."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Cases, Keywords, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task
from mlhood.grading.projects.p5 import reference
from mlhood.grading.projects.p5.libraries import TAPE
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.operators import no_jax

GRADIENTS = {0: "the gradient of x", 1: "the gradient of w", 2: "the gradient of bias"}
PROBES = "mlhood.grading.projects.p5.probes_numpy:"
# an attribute of an operator, beside those of `mlhood.jaxlab.autodiff`; with its default it changes nothing
CONV_OPTION = Parameter("conv_option", ("", "relu", "scale", "flip"))
SMOOTHING = Parameter("smoothing", (0.0, 0.1, 0.2, 0.3))  # of the labels, in the cross entropy of P5.6 and P5.8
# the values of the tape of which `backward` returns the gradients
GRADIENTS_OF = Parameter("gradients_of", ("reached", "inputs", "all"))


def rule(number: float, function: str, hint: str, **options: Any) -> Callable[[Cases], Check]:
    """Return a decorator for a check of a rule: its results are float32 arrays."""
    return compared(number, function, hint=hint, typed=True, rtol=1e-3, atol=1e-3, **options)


@rule(
    1,
    "vjp_relu",
    "which elements of x have changed y? At 0 the gradient is 0",
    parts={0: "the gradient of x"},
)
def relu_lets_positive_numbers_pass(submission: Submission) -> Iterator[Arguments]:
    """`vjp_relu` passes the gradient on where x was positive."""
    for x in (submission.normal(4, 5), 1 + np.abs(submission.normal(4, 5))):
        if x.min() < 0:
            x.flat[:2] = 0
        yield submission.normal(4, 5), np.maximum(x, 0), x


def _sum(submission: Submission, a: tuple[int, ...], b: tuple[int, ...]) -> Arguments:
    left, right = submission.normal(*a), submission.normal(*b)
    return submission.normal(*(left + right).shape), left + right, left, right


@rule(
    1,
    "vjp_add",
    "how does the sum change if one element of a does? Return new arrays: who adds to one would change the other, too",
    probe=PROBES + "apart",
    parts={0: "the gradient of a", 1: "the gradient of b"},
)
def sums_pass_the_gradient_on(submission: Submission) -> Iterator[Arguments]:
    """`vjp_add` passes the gradient on to both operands."""
    for shape in ((3, 4), (2, 3, 4, 5)):
        yield _sum(submission, shape, shape)


@rule(
    2,
    "vjp_add",
    "a gradient has its operand's shape: an element that was copied to many places gets the sum of what they got",
    parts={0: "the gradient of a", 1: "the gradient of b"},
)
def stretched_axes_are_added_up(submission: Submission) -> Iterator[Arguments]:
    """`vjp_add` sums over the axes along which an operand was broadcast."""
    for a, b in (((3, 4), (4,)), ((2, 1, 5), (3, 1)), ((2, 3, 4, 5), (3, 1, 1)), ((), (2, 2)), ((1, 3), (4, 1))):
        yield _sum(submission, a, b)


def _dense(submission: Submission) -> Iterator[Arguments]:
    for n in (4, 1):
        x, w, bias, g = (submission.normal(*shape) for shape in ((n, 3), (5, 3), (5,), (n, 5)))
        x, w, g, y = reference.dense_layout(submission.parameters.dense, x, w, g, x @ w.T + bias)
        yield g, y, x, w, bias


@rule(
    1,
    "vjp_dense",
    "which elements of y does x{{ '[i, n]' if dense.endswith('x') else '[n, i]' }} change, and by how much? The shapes "
    "leave one product for each of the two",
    parts={0: "the gradient of x", 1: "the gradient of w"},
)
def dense_gradients_are_products(submission: Submission) -> Iterator[Arguments]:
    """`vjp_dense` returns the gradients of x and w."""
    return _dense(submission)


@rule(
    1,
    "vjp_dense",
    "every {{ 'column' if dense.endswith('x') else 'row' }} of y adds the same bias",
    parts={2: "the gradient of bias"},
)
def dense_bias_gets_the_whole_batch(submission: Submission) -> Iterator[Arguments]:
    """`vjp_dense` sums the gradient of the bias over the batch."""
    return _dense(submission)


def _conv(submission: Submission, stride: int, padding: int, *, biased: bool = True, plain: bool = False) -> Arguments:
    x, w, *bias = (submission.normal(*shape) for shape in ((2, 3, 7, 6), (4, 3, 3, 2), *[(4,)] * biased))
    option = "" if plain else submission.parameters.conv_option
    values = (True,) if option in ("relu", "flip") else (0.5, -1.5, 3.0)
    attributes = Keywords({option: submission.rng.choice(values).item()} if option else {})
    filters = attributes.get("scale", 1.0) * (w[:, :, ::-1, ::-1] if "flip" in attributes else w)
    y = no_jax.conv2d(x, filters, bias[0] if bias else None, stride, padding)
    y = (np.maximum(y, 0) if "relu" in attributes else y).astype(np.float32)
    given = attributes | ({"stride": stride, "padding": padding} if (stride, padding) != (1, 0) else {})
    return submission.normal(*y.shape), y, x, w, *bias, Keywords(given)


@rule(
    2,
    "vjp_conv2d",
    "first the gradient of the columns, as of a dense layer; then `scatter` brings it back to the image",
    parts={0: "the gradient of x"},
)
def images_get_what_windows_gave(submission: Submission) -> Iterator[Arguments]:
    """`vjp_conv2d` returns the gradient of x."""
    yield _conv(submission, 1, 0)


@rule(
    2,
    "vjp_conv2d",
    "for one image this is a dense layer, whose w is [F, C * KH * KW]; all images use the same w: the sum of all. That "
    "of bias is the sum of g over images and positions",
    parts=GRADIENTS,  # that of x is the same without a bias
    presupposes={0: images_get_what_windows_gave},
)
def filters_get_what_their_windows_saw(submission: Submission) -> Iterator[Arguments]:
    """`vjp_conv2d` returns the gradients of w and bias."""
    yield _conv(submission, 1, 0)
    yield _conv(submission, 1, 0, biased=False, plain=True)


@rule(
    2,
    "vjp_conv2d",
    "`columns` and `scatter` take stride and padding, both the same ones as the convolution",
    parts=GRADIENTS,
    presupposes={0: images_get_what_windows_gave} | dict.fromkeys((1, 2), filters_get_what_their_windows_saw),
)
def strides_and_padding_are_kept(submission: Submission) -> Iterator[Arguments]:
    """`vjp_conv2d` uses stride and padding in every gradient that is right without them."""
    for stride, padding in ((2, 1), (2, 0), (1, 1), (3, 0)):  # with 3, no window reaches the last row and column
        yield _conv(submission, stride, padding)


def _entropy(submission: Submission, examples: int, g: float, offset: float = 0.0, classes: int = 6) -> Arguments:
    logits, labels = 2 * submission.normal(examples, classes), submission.rng.integers(0, classes, examples)
    logits[:, ::2] += np.float32(offset)
    y = np.float32(reference.cross_entropy(logits, labels, submission.parameters.smoothing))
    return np.float32(g), y, logits, labels


@rule(
    2,
    "vjp_cross_entropy",
    "differentiate log(sum(exp(logits))) - {{ 'sum(t * logits)' if smoothing else 'logits[label]' }}: what is the "
    "derivative of the first part called? As in P5.2, e^900 overflows. Integers have no derivative: None",
    parts={0: "the gradient of logits", 1: "that of labels"},
)
def logits_are_pulled_to_the_label(submission: Submission) -> Iterator[Arguments]:
    """`vjp_cross_entropy` returns the gradient of one example, however large the logits."""
    for offset in (0.0, 0.0, 900.0, 1e5):
        yield _entropy(submission, 1, 1.0, offset)


@rule(
    1,
    "vjp_cross_entropy",
    "y is a mean over N examples, and the loss changes by g for each unit of y",
    parts={0: "the gradient of logits", 1: "that of labels"},
)
def the_mean_shares_the_gradient(submission: Submission) -> Iterator[Arguments]:
    """`vjp_cross_entropy` divides g among the examples of a batch, as the loss is their mean."""
    yield _entropy(submission, 4, 1.0)
    yield _entropy(submission, 3, 2.5, classes=5)


def _same_gradients(got: Any, want: Any, what: str) -> None:
    """Compare what the probe of `backward` returns; gradients that are 0 may be there, too."""
    report = expect.mapping(got, ("gradients", "changed"), "what `backward` does")
    gradients: dict[Any, Any] = dict(expect.mapping(report["gradients"], (), "what `backward` returns"))
    keys, right = f"the keys {sorted(want['gradients'])}", want["gradients"]
    for number, gradient in right.items():
        what, shown = f"there is no gradient of value {number} from `backward`", str(sorted(gradients, key=str))
        expect.true(number in gradients, what, expected=keys, got=shown)
        gradient, what = np.asarray(gradient), f"the gradient of value {number} by `backward`"
        expect.close(gradients[number], gradient, what, dtype=np.float32 if gradient.shape else None)
    more = [key for key, value in gradients.items() if key not in right and (value is None or np.any(value))]
    what = "`backward` returns gradients of other values than it should"
    expect.true(not more, what, expected=keys, got=str(sorted(more, key=str)))
    expect.true(report["changed"] is False, "`backward` changes the tape", expected="the same values and entries")


def _tape_shown(arguments: Arguments, keywords: Mapping[str, Any]) -> str:
    values, entries = arguments
    lines = [f"{output} = {op} of {', '.join(map(str, inputs))}" for op, inputs, output, _ in entries]
    return f"{', '.join(lines)}; {len(values) - 1} is the last value"


def tape(number: float, hint: str) -> Callable[[Cases], Check]:
    """Return a decorator for a check of `backward`: each case is the values and the entries of a tape."""
    options: dict[str, Any] = {"probe": PROBES + "backward_result", "compare": _same_gradients, "given": _tape_shown}
    return compared(number, "backward", hint=hint, **options)


FORWARD: dict[str, Callable[..., Any]] = {
    "mul": np.multiply,
    "add": np.add,
    "scale": lambda x, factor: np.float32(factor) * x,
    "tanh": np.tanh,
    "weighted_sum": lambda x, weights: np.asarray((x * weights).sum(), np.float32),
}


def _recorded(inputs: dict[int, np.ndarray], *entries: list[Any]) -> Arguments:
    """Return the values of a tape with these inputs, by their numbers, and entries; and the entries."""
    values = dict(inputs)
    for op, operands, output, attributes in entries:
        values[output] = FORWARD[op](*(values[operand] for operand in operands), **attributes)
    return [values[number] for number in sorted(values)], list(entries)


@tape(2, "start at the last value, whose gradient is 1; an entry whose output has no gradient is passed over")
def the_tape_is_read_backwards(submission: Submission) -> Iterator[Arguments]:
    """`backward` propagates the gradient from the last value back to the first, through the rules."""
    yield _recorded(
        {number: submission.normal(6) for number in (0, 1, 3)},
        ["scale", [1], 2, {"factor": 1.5}],
        ["tanh", [3], 4, {}],  # which is not used
        ["tanh", [2], 5, {}],
        ["weighted_sum", [5, 0], 6, {}],  # the gradient of 0 is None
    )
    last = np.asarray(submission.normal(), np.float32)  # depends on itself alone
    yield _recorded({0: submission.normal(6), 2: last}, ["tanh", [0], 1, {}])


@tape(
    1,
    "where a gradient exists already, the sum of both, as a new array: += would change a shared one. One entry can "
    "read a value twice: both parts count",
)
def what_is_used_twice_gets_both(submission: Submission) -> Iterator[Arguments]:
    """`backward` adds up the gradients of a value that is used more than once."""
    for size in (5, 3):
        yield _recorded(
            {0: submission.normal(size), 1: submission.normal(size)},
            ["tanh", [1], 2, {}],
            ["mul", [1, 2], 3, {}],
            ["add", [3, 1], 4, {}],
            ["weighted_sum", [4, 0], 5, {}],
        )
    inputs = {0: submission.normal(4), 1: submission.normal(4)}
    yield _recorded(inputs, ["mul", [1, 1], 2, {}], ["weighted_sum", [2, 0], 3, {}])


P5_6 = Task(
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
    varies=(CONV_OPTION, SMOOTHING, GRADIENTS_OF),
    minutes=120,
    builds_on=("P5.2", "P5.5"),
)
