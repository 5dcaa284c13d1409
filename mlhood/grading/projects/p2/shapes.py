"""Checks of P2.2 and P2.3: import rules, the types that convolution and pooling infer, and what they must reject."""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.backends.interpreter import run
from mlhood.compiler.hir import TensorType
from mlhood.compiler.onnx.importer import import_model
from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, compared
from mlhood.grading.checks.oracle import graph_facts
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p2.libraries import COMPILER, TYPES
from mlhood.grading.projects.p2.loops import PROBES
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.variants.parameter import Parameter

IMPORT = "mlhood.compiler.onnx.importer:import_model"
HINT = "each attribute is read for itself, whatever others there are; ONNX's defaults: strides 1, pads 0, dilations 1, \
group 1; a node may omit its last input, or give it an empty name"

Weights = dict[str, np.ndarray | None]  # by name; None for an input that the node leaves out, by an empty name
Case = tuple[Weights, dict[str, Any]]  # weights, and attributes of the node


def _model(op: str, shape: tuple[int, ...], weights: Weights, attributes: dict[str, Any]) -> bytes:
    """Build a model of one node from x to y."""
    node = helper.make_node(op, ["x", *weights], ["y"], name=f"the_{op.lower()}", **attributes)
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, ["batch", *shape[1:]])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [None] * len(shape))
    tensors = [numpy_helper.from_array(value, name) for name, value in weights.items() if value is not None]
    graph = helper.make_graph([node], "one node", [x], [y], tensors)
    return helper.make_model(graph, ir_version=9, opset_imports=[helper.make_opsetid("", 18)]).SerializeToString()


def _check(submission: Submission, op: str, rule: str, cases: list[Case]) -> None:
    """Import one-node models by the student's rule and compare their results with those of the package's rule."""
    rules, shape, pairs, right = {op: submission.value(rule)}, (2, 4, 9, 11), [], []
    for weights, attributes in cases:
        x, data = submission.normal(*shape), _model(op, shape, weights, attributes)
        with expect.case(_given(op, weights, attributes), HINT):
            hir = submission.call(IMPORT, data, rules=rules)
        expect.true(isinstance(hir, Hir), f"`{rule}` does not produce a graph", got=hir)
        pairs.append((hir, {"x": x}))
        right.append(run(import_model(data), x=x)["y"])
    graphs = graph_facts(submission.parser, pairs, what=f"the graph that `{rule}` produces")
    for facts, want, case in zip(graphs, right, cases, strict=True):
        with expect.case(_given(op, *case), HINT):
            operators = [node.operator for node in facts.nodes]
            expect.equal(operators, [op], f"`{rule}` adds other nodes", hint="a rule adds one node")
            expect.close(facts.results.get("y"), want, f"the result of the node that `{rule}` adds", atol=1e-4)


def _given(op: str, weights: Weights, attributes: dict[str, Any]) -> str:
    given = f"{op} with {', '.join([f'{k}={v}' for k, v in attributes.items()]) or 'no attributes'}"
    return given + (f" and inputs x, {', '.join(name or 'an empty name' for name in weights)}" if weights else "")


@points(1)
def relu_is_imported(submission: Submission) -> None:
    """The rule for Relu adds one Relu node."""
    _check(submission, "Relu", "relu", [({}, {})])


@points(1)
def max_pool_is_imported(submission: Submission) -> None:
    """The rule for MaxPool reads its attributes and uses ONNX's defaults for those left out."""
    strides = {"strides": submission.rng.permutation([2, 3]).tolist()}
    pads = {"pads": [*submission.rng.permutation([0, 1, 2]).tolist()[:2], 1, 0]}
    others = (strides, strides | pads, {}, {"dilations": [2, 1]}, pads, {**strides, **pads, "dilations": [1, 2]})
    _check(submission, "MaxPool", "max_pool", [({}, {"kernel_shape": [3, 4], **each}) for each in others])


@points(2)
def conv_is_imported(submission: Submission) -> None:
    """The rule for Conv reads strides, pads, dilations and group; the bias is optional."""
    w, b, grouped = submission.normal(6, 4, 3, 2), submission.normal(6), submission.normal(6, 2, 3, 2)
    steps = {"strides": submission.rng.permutation([1, 2]).tolist(), "pads": [0, 1, 2, 1]}
    cases: list[Case] = [
        ({"w": w, "b": b}, steps),
        ({"w": w, "b": b}, {}),
        ({"w": w}, {"pads": [0, 1, 2, 1]}),
        ({"w": w, "b": b}, {"dilations": [2, 3]}),
        ({"w": submission.normal(4, 1, 2, 3)}, {"group": 4, "strides": [2, 3]}),
        ({"w": grouped, "b": b}, {**steps, "dilations": [2, 3], "group": 2}),
        ({"w": w, "": None}, {}),
    ]
    _check(submission, "Conv", "conv", cases)


P2_2 = Task(
    "P2.2",
    "Import rules",
    solution_is_fallback=True,
    libraries=COMPILER,
    minutes=15,
    builds_on=("P1.4",),
)


PADS_ORDER = Parameter(
    "pads_order",
    ("top, left, bottom, right", "top, bottom, left, right", "left, right, top, bottom", "left, top, right, bottom"),
)
ELEMENTS = ("float32", "float16", "float64", "bfloat16", "int8", "uint8", "int16", "int32", "int64")
# errors of code that was not meant to raise them
ACCIDENTS = ("NameError", "UnboundLocalError", "AttributeError", "KeyError", "IndexError", "ZeroDivisionError")
ACCIDENTS += ("ModuleNotFoundError", "ImportError")
SHAPE_HINT = """draw a kernel of 3 with dilation 2: it has gaps; the last window must end within the padded image, and \
padding allows larger kernels, which may fill it; pads are ({{ pads_order }}), all pairs (down, across)"""

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


def _compare(*parts: str) -> Callable[[object, TensorType, str], None]:
    """Return a comparison of parts of a type: its `shape`, its `batch` or its `element` type."""

    def compare(got: object, want: TensorType, what: str) -> None:
        if not isinstance(got, TensorType):
            expect.fail(f"{what} is not a TensorType", got=got, hint="return TensorType(element, shape)")
        for part in parts:
            of = {"shape": lambda t: t.shape, "batch": lambda t: t.shape[:1], "element": lambda t: t.element}[part]
            expect.equal(of(got), of(want), f"the {part} of {what} is wrong")

    return compare


@compared(
    2,
    "infer_conv",
    compare=_compare("shape"),
    hint=f"each axis has its own stride, padding at either end, and dilation; {SHAPE_HINT}; each group has its own "
    "C / group channels",
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


@compared(
    1,
    "infer_conv",
    compare=_compare("batch", "element"),
    hint="the first dimension may be a name: use x.shape[0] unchanged; the element type is x.element",
)
def batch_and_element_are_kept(submission: Submission) -> Iterator[Arguments]:
    """`infer_conv` keeps a symbolic batch dimension and the element type."""
    x, w, *attributes = draw_conv(submission)
    for batch, element in zip(("batch", "N", 1, *["n"] * 6), ELEMENTS, strict=True):
        yield _tensor(batch, *x.shape[1:], element=element), _tensor(*w.shape, element=element), *attributes
    got, what = submission.call("infer_conv", x, w, *attributes), "`infer_conv` returns the type of its argument"
    expect.true(got not in (x, w), what, hint="the result has other axes than x and w")


@points(1)
def misfits_are_refused(submission: Submission) -> None:
    """`infer_conv` raises an error if channels, element types or sizes do not match."""
    x, w, strides, pads, *attributes = draw_conv(submission)
    cases: list[tuple[TensorType, TensorType, Pair, int, str]] = [
        (_tensor(1, channels, *size), _tensor(features, depth, *kernel), dilations, group, reason)
        for channels, size, features, depth, kernel, dilations, group, reason in (
            (3, (30, 30), 2, 4, (3, 3), (1, 1), 1, "x's channels are not w's second axis x group"),
            (3, (9, 30), 2, 3, (7, 3), (3, 1), 1, "a kernel of 7 that spans 19, on 9 rows"),
            (3, (30, 9), 2, 3, (3, 7), (1, 3), 1, "a kernel of 7 that spans 19, on 9 columns"),
            (3, (2, 30), 2, 3, (9, 3), (1, 1), 1, "a kernel higher than the padded image"),
            (3, (30, 2), 2, 3, (3, 9), (1, 1), 1, "a kernel wider than the padded image"),
            (6, (30, 30), 7, 3, (3, 3), (1, 1), 2, "7 output channels in 2 groups"),
            (7, (30, 30), 6, 3, (3, 3), (1, 1), 2, "7 channels in 2 groups of 3"),
            (3, (30, 30), 6, 3, (3, 3), (1, 1), 2, "3 channels, and 2 groups of 3"),
            (2, (30, 30), 6, 3, (3, 3), (1, 1), 2, "2 channels, and 2 groups of 3"),
        )
    ]
    for one, other in itertools.permutations(ELEMENTS, 2):
        types = _tensor(*x.shape, element=one), _tensor(*w.shape, element=other)
        cases.append((*types, (1, 1), 1, f"x is {one} and w is {other}"))
    with expect.case(expect.format_call("infer_conv", (x, w, strides, pads, *attributes), {}), "these match"):
        submission.call("infer_conv", x, w, strides, pads, *attributes)
    for x_type, w_type, *others, reason in cases:
        _check_refused(submission, "infer_conv", (x_type, w_type, strides, pads, *others), reason)


@compared(
    2,
    "infer_pool",
    compare=_compare("shape", "element"),
    hint=f"as for a convolution, but channels and element type stay the same: {SHAPE_HINT}",
)
def pooling_has_its_type(submission: Submission) -> Iterator[Arguments]:
    """`infer_pool` infers the type of a max pooling, and rejects a window that does not fit."""
    for size, kernel, strides, pads in (
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
    # larger than the padded image on one axis each, by one
    for size, kernel, strides, pads in (
        ((4, 6), (6, 2), (1, 1), (1, 0, 0, 0)),
        ((6, 4), (2, 6), (1, 1), (0, 1, 0, 0)),
        ((4, 6), (6, 2), (3, 3), (0, 0, 1, 0)),
        ((6, 4), (2, 6), (3, 3), (0, 0, 0, 1)),
    ):
        arguments = _tensor(1, 3, *size), kernel, strides, arranged(submission, pads)
        _check_refused(submission, "infer_pool", arguments, "a window larger than the padded image")


def _check_refused(submission: Submission, name: str, arguments: Arguments, reason: str) -> None:
    """Check that a call raises an error, and not by accident."""
    attempt = expect.mapping(submission.probe(PROBES + "attempt", name, arguments), (), f"the result of `{name}`")
    raised, hint = attempt.get("raised"), "test the condition, and raise ValueError(...) if it does not hold"
    what = f"`{name}` accepts invalid arguments: {reason}"
    expect.true(raised is not None, what, expected="an error", got=attempt.get("returned"), hint=hint)
    what, got = f"`{name}` stops by accident, not with its own error: {reason}", f"{raised}: {attempt.get('message')}"
    expect.true(raised not in ACCIDENTS, what, expected="raise ValueError(...)", got=got, hint=hint)


P2_3 = Task(
    "P2.3",
    "Type inference",
    varies=(PADS_ORDER,),
    solution_is_fallback=True,
    libraries=TYPES,
    minutes=15,
    builds_on=("P2.2",),
)
