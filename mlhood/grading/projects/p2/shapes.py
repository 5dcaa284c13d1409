"""Checks of P2.3: the types that convolution and pooling infer, and the arguments that they must reject."""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.compiler.hir import TensorType
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import TYPES
from mlhood.grading.projects.p2.loops import PROBES, function
from mlhood.grading.variants.parameter import Parameter

PADS_ORDER = Parameter(
    "pads_order",
    ("top, left, bottom, right", "top, bottom, left, right", "left, right, top, bottom", "left, top, right, bottom"),
)
# an element type, and that of the result of a convolution of it
WIDENED = Parameter("widened", (("float32", "float32"), ("float16", "float32"), ("int8", "int32"), ("int16", "int64")))
# errors of code that was not meant to raise them
ACCIDENTS = ("NameError", "UnboundLocalError", "AttributeError", "KeyError", "IndexError", "ZeroDivisionError")
ACCIDENTS += ("ModuleNotFoundError", "ImportError")

Case = tuple[TensorType, TensorType, dict[str, Any]]
Pair = tuple[int, ...]


def _tensor(*shape: int | str, element: str = "float32") -> TensorType:
    return TensorType(element, shape)


def _conv_case(rng: np.random.Generator, group: int = 1) -> Case:
    """Draw a convolution whose other attributes are random and differ between the two axes."""
    depth, features = int(rng.integers(1, 5)), group * int(rng.integers(1, 5))
    kernel = [int(n) for n in rng.permutation([2, 3, 5])[:2]]
    attributes = {
        "strides": tuple(int(n) for n in rng.permutation([1, 2, 3])[:2]),
        "pads": tuple(int(n) for n in rng.permutation([0, 1, 2, 3])),
        "dilations": tuple(int(n) for n in rng.permutation([1, 2])),
        "group": group,
    }
    size = [int(n) for n in rng.permutation(np.arange(20, 40))[:2]]
    return _tensor(int(rng.integers(2, 9)), depth * group, *size), _tensor(features, depth, *kernel), attributes


def _check_type(got: object, want: TensorType, name: str, given: str, hint: str) -> None:
    if not isinstance(got, TensorType):
        expect.fail(f"`{name}` does not return a TensorType", expected=_spelled(want), got=got, given=given)
    expect.equal(tuple(got.shape), want.shape, f"`{name}` infers the wrong shape", given=given, hint=hint)
    for n in got.shape[1:]:
        expect.integer(n, f"the shape that `{name}` infers", given=given)
    expect.equal(got.element, want.element, f"`{name}` infers the wrong element type", given=given, hint="x.element")


def _check_container(submission: Submission, name: str, *args: Any, **kwargs: Any) -> None:
    container = submission.call(PROBES + "container_of_shape", function(submission, name), args, kwargs)
    what, hint = f"the shape that `{name}` infers is not a tuple", 'as in the task: TensorType("float32", ("batch", 1))'
    expect.equal(container, "tuple", what, hint=hint)


def _spelled(tensor: TensorType) -> str:
    return f"{tensor.element}{list(tensor.shape)}"


def arranged(submission: Submission, pads: Pair) -> Pair:
    """Return pads of (top, left, bottom, right) in the order that this variant of the course hands them over in."""
    by_side = dict(zip(PADS_ORDER.default.split(", "), pads, strict=True))
    return tuple(by_side[side] for side in submission.parameters.pads_order.split(", "))


def _check_conv(submission: Submission, case: Case, hint: str) -> None:
    x, w, operator = case
    attributes: dict[str, Any] = operator | {"pads": arranged(submission, operator["pads"])}
    given = f"x {_spelled(x)}, w {_spelled(w)}, " + ", ".join(f"{key} {value}" for key, value in attributes.items())
    with expect.case(given, hint):
        got = submission.call("infer_conv", x, w, **attributes)
    _check_type(got, Conv(**operator).infer(x, w), "infer_conv", given, hint)


@points(2)
def convolution_has_its_shape(submission: Submission) -> None:
    """`infer_conv` infers the output shape for any strides, padding, dilations and groups."""
    plain = {"strides": (1, 1), "pads": (0, 0, 0, 0), "dilations": (1, 1), "group": 1}
    x, w = _tensor(3, 2, 32, 28), _tensor(8, 2, 5, 3)
    small, x_grouped, w_grouped = _tensor(3, 2, 4, 5), _tensor(3, 6, 32, 28), _tensor(9, 2, 5, 3)
    cases: list[tuple[Case, str]] = [
        ((x, w, plain), "where can a kernel of 5 start on 32 pixels? The output has as many channels as w has filters"),
        ((x, w, plain | {"pads": (0, 1, 2, 3)}), f"pads are ({submission.parameters.pads_order})"),
        (
            (x, w, plain | {"strides": (2, 3)}),
            "the last window must end within the padded image",
        ),
        (
            (x, w, plain | {"dilations": (2, 3)}),
            "draw a kernel of 3 with dilation 2: it has gaps",
        ),
        (
            (small, w, plain | {"pads": (0, 1, 1, 0), "dilations": (1, 2)}),
            "padding allows larger kernels: it is the padded image that the span must fit into",
        ),
        (
            (x_grouped, w_grouped, plain | {"group": 3}),
            "each group has its own C / group channels: what does that say of w's second axis?",
        ),
    ]
    for case, hint in cases:
        _check_conv(submission, case, hint)
    hint = "each axis has its own stride, padding at either end, and dilation"
    for group in (1, 2, 3):
        _check_conv(submission, _conv_case(submission.rng, group), hint)
    _check_container(submission, "infer_conv", x, w, **plain)


@points(1)
def batch_and_element_are_kept(submission: Submission) -> None:
    """`infer_conv` keeps a symbolic batch dimension and the element type{{ "" if widened[0] == widened[1] else ", but for " ~ widened[0] }}."""  # noqa: E501 a template
    x, w, attributes = _conv_case(submission.rng)
    narrow, wide = submission.parameters.widened
    types = [("batch", "float32"), ("N", "float16"), (1, "float64")]
    if narrow != wide:
        types += [("n", narrow), ("n", wide)]
    for batch, element in types:
        x_type, w_type = _tensor(batch, *x.shape[1:], element=element), _tensor(*w.shape, element=element)
        given = f"x {_spelled(x_type)}, w {_spelled(w_type)}"
        with expect.case(given):
            got = submission.call("infer_conv", x_type, w_type, **attributes)
        if not isinstance(got, TensorType) or not got.shape:
            hint = "return TensorType(element, shape)"
            expect.fail("`infer_conv` does not return a TensorType with axes", got=got, given=given, hint=hint)
        what, hint = "`infer_conv` returns the type of its argument", "the result has other axes than x and w"
        expect.true(got.shape not in (x_type.shape, w_type.shape), what, got=_spelled(got), given=given, hint=hint)
        hint = "the first dimension may be a name: use x.shape[0] unchanged"
        expect.equal(got.shape[0], batch, "`infer_conv` loses the batch dimension", given=given, hint=hint)
        want, hint = (
            (wide, f"{narrow} becomes {wide}, here only") if element == narrow != wide else (element, "x.element")
        )
        expect.equal(got.element, want, "`infer_conv` infers the wrong element type", given=given, hint=hint)


@points(1)
def misfits_are_refused(submission: Submission) -> None:
    """`infer_conv` raises an error if channels, element types or sizes do not match."""
    x, w, attributes = _conv_case(submission.rng)
    infer = function(submission, "infer_conv")
    depth, kernel = int(w.shape[1]), w.shape[2:]
    two_groups, dilated = attributes | {"group": 2}, attributes | {"pads": (0, 0, 0, 0), "dilations": (3, 3)}
    tall, wide = dilated | {"dilations": (3, 1)}, dilated | {"dilations": (1, 3)}
    cases = (
        (x, _tensor(w.shape[0], depth + 1, *kernel), attributes, "x's channels are not w's second axis x group"),
        (x, _tensor(*w.shape, element="float64"), attributes, "x and w differ in their element type"),
        (_tensor(*x.shape, element="int32"), w, attributes, "x is int32 and w is float32"),
        (_tensor(*x.shape[:2], 2, 2), _tensor(*w.shape[:2], 9, 9), attributes, "a kernel larger than the padded image"),
        (_tensor(*x.shape[:2], 9, 9), _tensor(*w.shape[:2], 5, 5), dilated, "a kernel of 5 that spans 13, on 9 pixels"),
        (_tensor(*x.shape[:2], 9, 30), _tensor(*w.shape[:2], 5, 3), tall, "a kernel of 5 that spans 13, on 9 rows"),
        (_tensor(*x.shape[:2], 30, 9), _tensor(*w.shape[:2], 3, 5), wide, "a kernel of 5 that spans 13, on 9 columns"),
        (_tensor(1, 6, *x.shape[2:]), _tensor(7, 3, *kernel), two_groups, "7 output channels in 2 groups"),
        (_tensor(1, 7, *x.shape[2:]), _tensor(6, 3, *kernel), two_groups, "7 channels in 2 groups of 3"),
        (_tensor(1, 3, *x.shape[2:]), _tensor(6, 3, *kernel), two_groups, "3 channels, and 2 groups of 3"),
        (_tensor(*x.shape[:2], 2, 30), _tensor(*w.shape[:2], 9, 3), attributes, "a kernel higher than the image"),
        (_tensor(*x.shape[:2], 30, 2), _tensor(*w.shape[:2], 3, 9), attributes, "a kernel wider than the image"),
    )
    given = f"x {_spelled(x)}, w {_spelled(w)}, {attributes}"
    with expect.case(given, "these match: return their type"):
        submission.call(PROBES + "container_of_shape", infer, (x, w), attributes)
    for x_type, w_type, arguments, reason in cases:
        result = submission.call(PROBES + "attempt", infer, (x_type, w_type), arguments)
        check_raised(result, "infer_conv", reason, "test the condition, and raise ValueError(...) if it does not hold")


@points(2)
def pooling_has_its_type(submission: Submission) -> None:
    """`infer_pool` infers the type of a max pooling, and rejects a window that does not fit."""
    rng = submission.rng
    hint = "as for a convolution, but channels and element type stay the same"
    for batch, element in (("batch", "float32"), (4, "float16"), ("n", "int8")):
        kernel = tuple(int(n) for n in rng.permutation([2, 3, 4])[:2])
        strides = tuple(int(n) for n in rng.permutation([1, 2, 3])[:2])
        pads = tuple(int(n) for n in rng.permutation([0, 0, 1, 1]))
        size = [int(n) for n in rng.permutation(np.arange(12, 30))[:2]]
        x = _tensor(batch, int(rng.integers(2, 9)), *size, element=element)
        _check_pool(submission, x, kernel, strides, pads, hint)
    x = _tensor("batch", 3, 13, 16)
    _check_pool(submission, x, (3, 3), (1, 1), (0, 1, 2, 0), f"pads are ({submission.parameters.pads_order})")
    _check_pool(submission, x, (2, 2), (3, 3), (0, 0, 0, 0), "the last window must end within the padded image")
    hint = "padding allows larger windows: it is the padded image that the window must fit into, also exactly"
    for size, pads in (((2, 3), (0, 1, 1, 0)), ((3, 2), (1, 0, 0, 1))):  # one axis fits exactly
        _check_pool(submission, _tensor(2, 3, *size), (3, 3), (1, 1), pads, hint)
    _check_container(submission, "infer_pool", x, kernel=(2, 2), strides=(2, 2), pads=(0, 0, 0, 0))
    infer = function(submission, "infer_pool")
    # larger than the padded image on one axis each: by one, if nothing else
    for size, kernel, strides, pads in (
        ((6, 6), (9, 2), (2, 2), (1, 1, 1, 1)),
        ((6, 6), (2, 9), (2, 2), (1, 1, 1, 1)),
        ((4, 6), (6, 2), (1, 1), (1, 0, 0, 0)),
        ((6, 4), (2, 6), (1, 1), (0, 1, 0, 0)),
        ((4, 6), (6, 2), (3, 3), (0, 0, 1, 0)),
        ((6, 4), (2, 6), (3, 3), (0, 0, 0, 1)),
    ):
        large = {"kernel": kernel, "strides": strides, "pads": arranged(submission, pads)}
        result = submission.call(PROBES + "attempt", infer, (_tensor(1, 3, *size),), large)
        padded = f"{size[0] + pads[0] + pads[2]} x {size[1] + pads[1] + pads[3]}"
        reason = f"a window of {kernel[0]} x {kernel[1]}, larger than the padded image of {padded}"
        check_raised(result, "infer_pool", reason, "raise ValueError(...), as in `infer_conv`")


def check_raised(result: object, name: str, reason: str, hint: str) -> None:
    """Check the report of a call that should raise an error, and not by accident."""
    attempt = expect.mapping(result, (), f"the result of `{name}`")
    what = f"`{name}` accepts invalid arguments: {reason}"
    raised = attempt.get("raised")
    expect.true(raised is not None, what, expected="an error", got=attempt.get("returned"), hint=hint)
    meant = raised not in ACCIDENTS
    what = f"`{name}` stops by accident, not with an error of its own: {reason}"
    expect.true(meant, what, expected="raise ValueError(...)", got=f"{raised}: {attempt.get('message')}", hint=hint)


def _check_pool(submission: Submission, x: TensorType, kernel: Pair, strides: Pair, pads: Pair, hint: str) -> None:
    given_pads = arranged(submission, pads)
    given = f"x {_spelled(x)}, kernel {kernel}, strides {strides}, pads {given_pads}"
    with expect.case(given, hint):
        got = submission.call("infer_pool", x, kernel=kernel, strides=strides, pads=given_pads)
    _check_type(got, MaxPool(kernel, strides, pads, (1, 1)).infer(x), "infer_pool", given, hint)


TASKS = (
    Task(
        "P2.3",
        "Type inference",
        checks=(convolution_has_its_shape, batch_and_element_are_kept, misfits_are_refused, pooling_has_its_type),
        varies=(PADS_ORDER, WIDENED),
        solution_stands_in=True,
        libraries=TYPES,
        minutes=15,
        builds_on=("P2.2",),
    ),
)
