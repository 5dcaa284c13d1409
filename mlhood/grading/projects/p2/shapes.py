"""Checks of P2.3: the types that convolution and pooling infer, and the arguments that they must reject."""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.compiler.hir import TensorType
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
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
ELEMENTS = ("float32", "float16", "float64", "bfloat16", "int8", "uint8", "int16", "int32", "int64")
# errors of code that was not meant to raise them
ACCIDENTS = ("NameError", "UnboundLocalError", "AttributeError", "KeyError", "IndexError", "ZeroDivisionError")
ACCIDENTS += ("ModuleNotFoundError", "ImportError")
AXES = "strides, dilations and kernels are (down, across): first for the rows, then for the columns"
SHAPE_HINT = """draw a kernel of 3 with dilation 2: it has gaps; the last window must end within the padded image, and \
padding allows larger kernels, which may fill it; pads are ({{ pads_order }})"""

Pair = tuple[int, ...]


def _tensor(*shape: int | str, element: str = "float32") -> TensorType:
    return TensorType(element, shape)


def draw_conv(submission: Submission, group: int = 1) -> tuple[TensorType, TensorType, Pair, Pair, Pair, int]:
    """Draw arguments of `infer_conv` that differ between the two axes."""
    rng = submission.rng
    depth, features = int(rng.integers(1, 5)), group * int(rng.integers(1, 5))
    kernel, strides = _permuted(rng, [2, 3, 5])[:2], _permuted(rng, [1, 2, 3])[:2]
    pads, dilations, size = _permuted(rng, range(4)), _permuted(rng, [1, 2]), _permuted(rng, range(20, 40))[:2]
    x, w = _tensor(int(rng.integers(2, 9)), depth * group, *size), _tensor(features, depth, *kernel)
    return x, w, strides, arranged(submission, pads), dilations, group


def _permuted(rng: np.random.Generator, numbers: Any) -> Pair:
    return tuple(int(n) for n in rng.permutation(numbers))


def arranged(submission: Submission, pads: Pair) -> Pair:
    """Return pads of (top, left, bottom, right) in the order that this variant of the course hands them over in."""
    by_side = dict(zip(PADS_ORDER.default.split(", "), pads, strict=True))
    return tuple(by_side[side] for side in submission.parameters.pads_order.split(", "))


def _compare_shapes(got: object, want: TensorType, what: str) -> None:
    expect.equal(_type(got, what).shape, want.shape, f"the shape of {what} is wrong")


def _compare_types(got: object, want: TensorType, what: str) -> None:
    _compare_shapes(got, want, what)
    expect.equal(_type(got, what).element, want.element, f"the element type of {what} is wrong")


def _compare_elements(got: object, want: TensorType, what: str) -> None:
    expect.equal(_type(got, what).shape[:1], want.shape[:1], f"{what} has lost the batch dimension")
    expect.equal(_type(got, what).element, want.element, f"the element type of {what} is wrong")


def _type(value: object, what: str) -> TensorType:
    if not isinstance(value, TensorType):
        expect.fail(f"{what} is not a TensorType", got=value, hint="return TensorType(element, shape)")
    return value


def _with_strides_swapped(*arguments: Any) -> Arguments:
    """Return the arguments of `infer_conv` or `infer_pool` with the strides, the third, of the other axis each."""
    return *arguments[:2], arguments[2][::-1], *arguments[3:]


def _check_container(submission: Submission, name: str, *arguments: Any) -> None:
    container = submission.call(PROBES + "container_of_shape", function(submission, name), arguments)
    what, hint = f"the shape that `{name}` infers is not a tuple", 'as in the task: TensorType("float32", ("batch", 1))'
    expect.equal(container, "tuple", what, hint=hint)


@compared(
    2,
    "infer_conv",
    compare=_compare_shapes,
    hint=f"each axis has its own stride, padding at either end, and dilation; {SHAPE_HINT}; each group has its own "
    "C / group channels",
    others={AXES: _with_strides_swapped},
)
def convolution_has_its_shape(submission: Submission) -> Iterator[Arguments]:
    """`infer_conv` infers the output shape for any strides, padding, dilations and groups."""
    w = _tensor(8, 2, 5, 3)
    for size, strides, pads, dilations in (
        ((32, 28), (1, 1), (0, 0, 0, 0), (1, 1)),
        ((32, 28), (2, 3), (0, 0, 0, 0), (1, 1)),
        ((32, 28), (1, 1), (0, 0, 0, 0), (2, 3)),
        ((32, 28), (1, 1), (0, 1, 2, 3), (1, 1)),
        ((4, 4), (1, 1), (0, 1, 1, 0), (1, 2)),  # fits exactly
        ((6, 4), (7, 9), (0, 0, 0, 0), (1, 1)),  # one step leaves the image
    ):
        yield _tensor(3, 2, *size), w, strides, arranged(submission, pads), dilations, 1
    for group in (1, 2, 3):
        yield draw_conv(submission, group)
    _check_container(submission, "infer_conv", *draw_conv(submission))


@compared(
    1,
    "infer_conv",
    compare=_compare_elements,
    hint="""the first dimension may be a name: use x.shape[0] unchanged; the element type is x.element\
{{ "" if widened[0] == widened[1] else ", but %s becomes %s, and no other" % widened }}""",
)
def batch_and_element_are_kept(submission: Submission) -> Iterator[Arguments]:
    """`infer_conv` keeps a symbolic batch dimension and the element type{{ "" if widened[0] == widened[1] else ", but for " ~ widened[0] }}."""  # noqa: E501 a template
    x, w, *attributes = draw_conv(submission)
    for batch, element in zip(("batch", "N", 1, *["n"] * 6), ELEMENTS, strict=True):
        yield _tensor(batch, *x.shape[1:], element=element), _tensor(*w.shape, element=element), *attributes
    got = _type(submission.call("infer_conv", x, w, *attributes), "what `infer_conv` returns")
    what, hint = "`infer_conv` returns the type of its argument", "the result has other axes than x and w"
    expect.true(got.shape not in (x.shape, w.shape), what, hint=hint)


@points(1)
def misfits_are_refused(submission: Submission) -> None:
    """`infer_conv` raises an error if channels, element types or sizes do not match."""
    x, w, *drawn = draw_conv(submission)
    attributes, depth, kernel = tuple(drawn), int(w.shape[1]), w.shape[2:]
    strides, pads, dilations, _ = attributes
    groups = strides, pads, dilations, 2
    dilated, tall, wide = ((strides, (0, 0, 0, 0), each, 1) for each in ((3, 3), (3, 1), (1, 3)))
    cases = [
        (x, _tensor(w.shape[0], depth + 1, *kernel), attributes, "x's channels are not w's second axis x group"),
        (_tensor(*x.shape[:2], 2, 2), _tensor(*w.shape[:2], 9, 9), attributes, "a kernel larger than the padded image"),
        (_tensor(*x.shape[:2], 9, 9), _tensor(*w.shape[:2], 5, 5), dilated, "a kernel of 5 that spans 13, on 9 pixels"),
        (_tensor(*x.shape[:2], 9, 30), _tensor(*w.shape[:2], 5, 3), tall, "a kernel of 5 that spans 13, on 9 rows"),
        (_tensor(*x.shape[:2], 30, 9), _tensor(*w.shape[:2], 3, 5), wide, "a kernel of 5 that spans 13, on 9 columns"),
        (_tensor(1, 6, *x.shape[2:]), _tensor(7, 3, *kernel), groups, "7 output channels in 2 groups"),
        (_tensor(1, 7, *x.shape[2:]), _tensor(6, 3, *kernel), groups, "7 channels in 2 groups of 3"),
        (_tensor(1, 3, *x.shape[2:]), _tensor(6, 3, *kernel), groups, "3 channels, and 2 groups of 3"),
        (_tensor(1, 2, *x.shape[2:]), _tensor(6, 3, *kernel), groups, "2 channels, and 2 groups of 3"),
        (_tensor(*x.shape[:2], 2, 30), _tensor(*w.shape[:2], 9, 3), attributes, "a kernel higher than the image"),
        (_tensor(*x.shape[:2], 30, 2), _tensor(*w.shape[:2], 3, 9), attributes, "a kernel wider than the image"),
    ]
    for one, other in itertools.permutations(ELEMENTS, 2):
        types = _tensor(*x.shape, element=one), _tensor(*w.shape, element=other)
        cases.append((*types, attributes, f"x is {one} and w is {other}"))
    with expect.case(expect.format_call("infer_conv", (x, w, *attributes), {}), "these match: return their type"):
        submission.call("infer_conv", x, w, *attributes)
    hint = "test the condition, and raise ValueError(...) if it does not hold"
    for x_type, w_type, others, reason in cases:
        _check_refused(submission, "infer_conv", (x_type, w_type, *others), reason, hint)


@compared(
    2,
    "infer_pool",
    compare=_compare_types,
    hint=f"as for a convolution, but channels and element type stay the same: {SHAPE_HINT}",
    others={AXES: _with_strides_swapped},
)
def pooling_has_its_type(submission: Submission) -> Iterator[Arguments]:
    """`infer_pool` infers the type of a max pooling, and rejects a window that does not fit."""
    for size, kernel, strides, pads in (
        ((13, 16), (2, 2), (2, 3), (0, 0, 0, 0)),
        ((13, 16), (3, 3), (1, 1), (0, 1, 2, 0)),
        ((13, 16), (2, 2), (3, 3), (0, 0, 0, 0)),
        ((2, 3), (3, 3), (1, 1), (0, 1, 1, 0)),  # one axis fits exactly
        ((3, 2), (3, 3), (1, 1), (1, 0, 0, 1)),
    ):
        yield _tensor("batch", 3, *size), kernel, strides, arranged(submission, pads)
    rng = submission.rng
    for batch, element in zip(("batch", 4, *["n"] * 7), ELEMENTS, strict=True):
        kernel, strides = _permuted(rng, [2, 3, 4])[:2], _permuted(rng, [1, 2, 3])[:2]
        size, pads = _permuted(rng, range(12, 30))[:2], arranged(submission, _permuted(rng, [0, 0, 1, 1]))
        yield _tensor(batch, int(rng.integers(2, 9)), *size, element=element), kernel, strides, pads
    _check_container(submission, "infer_pool", _tensor("batch", 3, 13, 16), (2, 2), (2, 2), (0, 0, 0, 0))
    # larger than the padded image on one axis each: by one, if nothing else
    for size, kernel, strides, pads in (
        ((6, 6), (9, 2), (2, 2), (1, 1, 1, 1)),
        ((6, 6), (2, 9), (2, 2), (1, 1, 1, 1)),
        ((4, 6), (6, 2), (1, 1), (1, 0, 0, 0)),
        ((6, 4), (2, 6), (1, 1), (0, 1, 0, 0)),
        ((4, 6), (6, 2), (3, 3), (0, 0, 1, 0)),
        ((6, 4), (2, 6), (3, 3), (0, 0, 0, 1)),
    ):
        arguments = _tensor(1, 3, *size), kernel, strides, arranged(submission, pads)
        padded = f"{size[0] + pads[0] + pads[2]} x {size[1] + pads[1] + pads[3]}"
        reason = f"a window of {kernel[0]} x {kernel[1]}, larger than the padded image of {padded}"
        _check_refused(submission, "infer_pool", arguments, reason, "raise ValueError(...), as in `infer_conv`")


def _check_refused(submission: Submission, name: str, arguments: Arguments, reason: str, hint: str) -> None:
    check_raised(submission.call(PROBES + "attempt", function(submission, name), arguments), name, reason, hint)


def check_raised(result: object, name: str, reason: str, hint: str) -> None:
    """Check the report of a call that should raise an error, and not by accident."""
    attempt = expect.mapping(result, (), f"the result of `{name}`")
    what = f"`{name}` accepts invalid arguments: {reason}"
    raised = attempt.get("raised")
    expect.true(raised is not None, what, expected="an error", got=attempt.get("returned"), hint=hint)
    meant = raised not in ACCIDENTS
    what = f"`{name}` stops by accident, not with its own error: {reason}"
    expect.true(meant, what, expected="raise ValueError(...)", got=f"{raised}: {attempt.get('message')}", hint=hint)


P2_3 = Task(
    "P2.3",
    "Type inference",
    varies=(PADS_ORDER, WIDENED),
    solution_is_fallback=True,
    libraries=TYPES,
    minutes=15,
    builds_on=("P2.2",),
)
