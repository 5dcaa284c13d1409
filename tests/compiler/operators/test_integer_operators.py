"""Operators on quantised tensors, against the same operators on the reals that the integers stand for."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import Graph, Quantization, TensorType, verify
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.activation import apply_activation
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected
from mlhood.compiler.operators.integer_elementwise import (
    Lookup,
    QuantizedAdd,
    QuantizedAveragePool,
    QuantizedGlobalAveragePool,
    QuantizedMul,
    as_function,
)
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool
from mlhood.compiler.operators.rescale import Rescale
from mlhood.compiler.quantize.schema import dequantize_array
from mlhood.errors import CompilerError

few = settings(max_examples=40)
ELEMENTS = ["int8", "uint8", "int16"]
ACTIVATIONS = [(), ("Relu",), ("Clip", -0.4, 0.9), ("Clip", None, 0.3), ("LeakyRelu", 0.1), ("LeakyRelu", -0.5)]
elements, activations = st.sampled_from(ELEMENTS), st.sampled_from(ACTIVATIONS)


def whole(draw, element, size=1.0):
    """Parameters of about the range -size to size."""
    limits = np.iinfo(element)
    middle = (int(limits.min) + int(limits.max) + 1) // 2
    reach = (int(limits.max) - int(limits.min)) // 8
    scale = size * draw.uniform(1, 2) * 2 / (int(limits.max) - int(limits.min))
    return Quantization((float(scale),), (int(middle + draw.integers(-reach, reach + 1)),))


def stored(draw, element, *shape):
    limits = np.iinfo(element)
    return draw.integers(limits.min, limits.max + 1, shape).astype(element)


def run(operator, arrays, types):
    """Run an operator as a node of a graph; its text must give it back."""
    graph = Graph()
    values = [
        None if array is None else graph.constant(f"x{i}", array, type.quantization)
        for i, (array, type) in enumerate(zip(arrays, types, strict=True))
    ]
    node = graph.add(operator, *values)
    graph.output(node.outputs[0], "y")
    verify(graph)
    assert to_text(parse(to_text(graph), constants_by_digest(graph))) == to_text(graph)
    return Interpreter(graph).run({})["y"]


def check(operator, arrays, parameters, real, activation=(), steps=0.51):
    """The integers are within a rounding of the activated reals, where these are in range."""
    types = [
        None if a is None else TensorType(a.dtype.name, a.shape, p) for a, p in zip(arrays, parameters, strict=True)
    ]
    got = run(operator, arrays, types)
    wanted = apply_activation(real, activation)
    limits, y = np.iinfo(got.dtype), operator.quantization
    exact = np.clip(wanted / y.scale[0] + y.offset[0], limits.min, limits.max)
    assert got.shape == wanted.shape
    # a limit of Clip is rounded to a step of its own, so that what lies on it is off by half a step at most
    assert np.abs(got - exact).max() <= steps


def reals(array, parameters):
    return dequantize_array(array, parameters)


@few
@given(seed=st.integers(0, 2**31), element=elements, activation=activations)
def test_rescale(seed, element, activation):
    draw = np.random.default_rng(seed)
    x, of_x, of_y = stored(draw, element, 50), whole(draw, element), whole(draw, element)
    check(Rescale(of_y, activation), [x], [of_x], reals(x, of_x), activation)


@few
@given(seed=st.integers(0, 2**31), element=elements, activation=activations)
def test_add(seed, element, activation):
    draw = np.random.default_rng(seed)
    a, b = stored(draw, element, 4, 3, 5), stored(draw, element, 3, 1)
    of_a, of_b, of_y = whole(draw, element), whole(draw, element, 0.01), whole(draw, element)
    wanted = reals(a, of_a) + reals(b, of_b)
    check(QuantizedAdd(of_y, activation), [a, b], [of_a, of_b], wanted, activation)


@few
@given(seed=st.integers(0, 2**31), element=elements, activation=activations)
def test_mul(seed, element, activation):
    draw = np.random.default_rng(seed)
    a, b = stored(draw, element, 4, 3), stored(draw, element, 4, 1)
    of_a, of_b, of_y = whole(draw, element), whole(draw, element), whole(draw, element)
    wanted = reals(a, of_a) * reals(b, of_b)
    check(QuantizedMul(of_y, activation), [a, b], [of_a, of_b], wanted, activation)


def layer(draw, element, per_channel, *shape):
    """A weight with its parameters, and a bias with its."""
    kind = "int8" if element == "uint8" else element
    w = stored(draw, kind, *shape)
    size = 0.5 / np.sqrt(np.prod(shape[1:]))
    one = whole(draw, kind, size)
    scales = tuple((one.scale[0] * draw.uniform(0.01, 1, shape[0])).tolist())
    of_w = Quantization(scales, (0,) * shape[0], 0) if per_channel else one
    return w, of_w


def bias_of(draw, of_w, of_x, features):
    of_b = Quantization(tuple(s * of_x.scale[0] for s in of_w.scale), (0,) * len(of_w.scale), of_w.axis)
    steps = np.rint(draw.uniform(-0.3, 0.3, features) / np.array(of_b.scale))
    return np.clip(steps, -(2**30), 2**30).astype(np.int32), of_b


@few
@given(
    seed=st.integers(0, 2**31), element=elements, activation=activations, branch=st.booleans(), channels=st.booleans()
)
def test_conv(seed, element, activation, branch, channels):
    draw = np.random.default_rng(seed)
    x, of_x, of_y, of_z = stored(draw, element, 2, 4, 6, 5), *(whole(draw, element) for _ in range(3))
    w, of_w = layer(draw, element, channels, 6, 2, 3, 2)
    bias, of_bias = bias_of(draw, of_w, of_x, 6)
    window = ((2, 1), (1, 0, 1, 1), (1, 2), 2)
    wanted = Conv(*window).evaluate(reals(x, of_x), reals(w, of_w), reals(bias, of_bias))
    z = stored(draw, element, *wanted.shape) if branch else None
    wanted = wanted if z is None else wanted + reals(z, of_z)
    operator = QuantizedConv(*window, of_y, activation, rescale="shift")
    check(operator, [x, w, bias, z], [of_x, of_w, of_bias, of_z], wanted, activation, steps=0.6)


@few
@given(seed=st.integers(0, 2**31), element=elements, activation=activations, channels=st.booleans())
def test_fully_connected(seed, element, activation, channels):
    draw = np.random.default_rng(seed)
    x, of_x, of_y = stored(draw, element, 2, 3, 40), whole(draw, element), whole(draw, element)
    w, of_w = layer(draw, element, channels, 7, 40)
    bias, of_bias = bias_of(draw, of_w, of_x, 7)
    wanted = reals(x, of_x) @ reals(w, of_w).T + reals(bias, of_bias)
    arrays, parameters = [x, w, bias], [of_x, of_w, of_bias]
    check(QuantizedFullyConnected(of_y, activation), arrays, parameters, wanted, activation, steps=0.6)


@few
@given(seed=st.integers(0, 2**31), element=elements, counted=st.booleans(), ceil=st.booleans())
def test_average_pool(seed, element, counted, ceil):
    draw = np.random.default_rng(seed)
    x, of_x, of_y = stored(draw, element, 2, 3, 7, 6), whole(draw, element), whole(draw, element, 0.5)
    window = ((3, 2), (2, 2), (1, 0, 1, 1), (1, 1), ceil, counted)
    wanted = AveragePool(*window).evaluate(reals(x, of_x))
    check(QuantizedAveragePool(*window, of_y), [x], [of_x], wanted)


@few
@given(seed=st.integers(0, 2**31), element=elements)
def test_global_average_pool(seed, element):
    draw = np.random.default_rng(seed)
    x, of_x, of_y = stored(draw, element, 2, 3, 5, 4), whole(draw, element), whole(draw, element, 0.3)
    check(QuantizedGlobalAveragePool(of_y), [x], [of_x], GlobalAveragePool().evaluate(reals(x, of_x)))


@pytest.mark.parametrize("element", ["int8", "uint8"])
@pytest.mark.parametrize("function", [("Sigmoid",), ("Tanh",), ("HardSwish",), ("Elu", 1.0, 1.0), ("Relu",)])
def test_lookup(element, function):
    draw = np.random.default_rng(0)
    limits = np.iinfo(element)
    x = np.arange(limits.min, limits.max + 1).astype(element)
    of_x, of_y = whole(draw, element, 6.0), whole(draw, element)
    operator = Lookup(function, of_y)
    table = operator.table(TensorType(element, (256,), of_x))
    got = run(operator, [x], [TensorType(element, x.shape, of_x)])
    np.testing.assert_array_equal(got, table)
    if function[0] in ("Sigmoid", "Tanh"):
        exact = {"Sigmoid": lambda r: 1 / (1 + np.exp(-r)), "Tanh": np.tanh}[function[0]](reals(x, of_x))
        assert np.abs(got - np.clip(exact / of_y.scale[0] + of_y.offset[0], limits.min, limits.max)).max() <= 0.51


def test_what_gives_no_number_is_zero_in_a_table():
    of_x, of_y = Quantization((0.1,), (0,)), Quantization((0.1,), (3,))
    table = Lookup(("Log",), of_y).table(TensorType("int8", (1,), of_x))
    assert (table[:128] == 3).all()  # of negative numbers
    assert table[128] == -128  # of zero


def test_relu_of_integers_is_a_limit():
    of_x = Quantization((0.5,), (-10,))
    got = run(
        Rescale(of_x, ("Relu",)), [np.array([-128, -11, -10, -9, 127], np.int8)], [TensorType("int8", (5,), of_x)]
    )
    np.testing.assert_array_equal(got, [-10, -10, -10, -9, 127])


def test_the_largest_sums_wrap_in_eight_bits_and_fit_in_sixteen():
    of_x = Quantization((1.0,), (0,))
    for element, wraps in (("int8", True), ("int16", False)):
        least = np.iinfo(element).min
        x = np.full((1, 140_000 if wraps else 4_608), least, element)
        of_y = Quantization((float(2**24 if wraps else 2**30),), (0,))
        got = run(QuantizedFullyConnected(of_y), [x, x], [TensorType(element, x.shape, of_x)] * 2)
        exact = x.size * int(least) ** 2
        assert exact > 2**31
        assert got.item() == (-119 if wraps else np.clip(round(exact / 2**30), None, 32767))


X8 = TensorType("int8", (1, 2, 4, 4), Quantization((0.1,), (3,)))
W8 = TensorType("int8", (2, 2, 3, 3), Quantization((0.1,), (0,)))
Y = Quantization((0.2,), (0,))
BARE = ((1, 1), (0, 0, 0, 0), (1, 1), 1)


@pytest.mark.parametrize(
    ("operator", "types", "message"),
    [
        (Rescale(Y), [TensorType("float32", (2,))], "not quantised"),
        (Rescale(Y), [TensorType("int8", (2,), Quantization((0.1, 0.2), (0, 0), 0))], "quantised per tensor"),
        (Rescale(Quantization((0.1,), (300,))), [X8], "invalid quantisation parameters"),
        (Rescale(Quantization((0.1, 0.2), (0, 0), 1)), [X8], "quantised per tensor"),
        (Rescale(Y, ("Sigmoid",)), [X8], "unsupported activation of an integer"),
        (Rescale(Y, ("Nothing",)), [X8], "unknown activation"),
        (Lookup(("Sigmoid",), Y), [TensorType("int16", (2,), Y)], "8 bits"),
        (Lookup(("Softmax",), Y), [X8], "lookup tables do not support this function"),
        (Lookup(("Elu", 1, 2, 3), Y), [X8], "invalid attributes of the function"),
        (QuantizedAdd(Y), [X8, TensorType("int16", X8.shape, Y)], "element types differ"),
        (QuantizedConv(*BARE, Y, ("Relu",)), [X8, W8], "requires rescaling by shifts"),
        (QuantizedConv(*BARE, Y, rescale="floor"), [X8, W8], "unknown method of rescaling"),
        (
            QuantizedConv(*BARE, Y),
            [X8, TensorType("int8", (2, 2, 3, 3), Quantization((1.0,) * 2, (0,) * 2, 1))],
            "output",
        ),
        (QuantizedConv(*BARE, Y), [X8, W8, TensorType("int64", (2,))], "must be int32"),
        (QuantizedConv(*BARE, Y), [X8, W8, TensorType("int32", (2,), Y)], "in units of"),
        (QuantizedConv(*BARE, Y, rescale="shift"), [X8, W8, None, X8], "a different type"),
        (QuantizedGlobalAveragePool(Y), [TensorType("int8", (2,), Y)], "batch and a channel"),
    ],
)
def test_types_that_do_not_fit(operator, types, message):
    with pytest.raises(CompilerError, match=message):
        operator.infer(*types)


def test_what_can_be_a_table():
    assert as_function(Add()) is None
