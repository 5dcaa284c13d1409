"""Operators that transformers use, against ONNX Runtime, on every target and exported again."""

import numpy as np
import onnx
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import assert_agreement, session_of

RNG = np.random.default_rng(0)


def model_of(signature, body, opset=20):
    """Return a model in ONNX's text form: its inputs and outputs, and its nodes."""
    return onnx.parser.parse_model(f'<ir_version: 8, opset_import: ["": {opset}]> test {signature} {{ {body} }}')


def reals(*shape):
    return RNG.standard_normal(shape, np.float32)


@pytest.mark.parametrize(
    ("element", "bounds"),
    [
        ("int64", (3, 10, 2)),
        ("int64", (10, 3, -3)),
        ("int32", (5, 5, 1)),
        ("int64", (5, 0, 1)),
        ("float", (1.0, 5.1, 0.5)),
        ("float", (1.0, -1.0, -0.3)),
        ("double", (0.0, 1.0, 0.1)),
    ],
)
def test_ranges_of_constants(element, bounds):
    start, limit, delta = (
        f"{name} = Constant<value = {element} {{{n}}}> ()" for name, n in zip("abc", bounds, strict=True)
    )
    body = f"{start} {limit} {delta} r = Range(a, b, c) y = Identity(r)"
    model = model_of(f"(float[n] x) => ({element}[k] y)", body)
    graph = assert_agreement(model, {"x": reals(1)})
    assert graph.outputs["y"].type.shape == (len(np.arange(*bounds)),)


@pytest.mark.parametrize(
    ("body", "length"),
    [
        ("y = Range(zero, n, one)", "n"),
        ("m = Add(n, one) y = Range(zero, m, one)", "n+1"),
        ("m = Sub(n, one) y = Range(one, n, one)", "max(n-1, 0)"),
        ("m = Add(n, p) minus = Neg(p) y = Range(m, n, minus)", "range(n+p, n, -p)"),
        ("two = Add(one, one) y = Range(one, n, two)", "n//2"),
        ("m = Add(n, p) y = Range(p, m, one)", "n"),
        ("m = Add(n, p) y = Range(n, m, one)", "p"),
    ],
)
def test_ranges_as_long_as_an_open_axis(body, length):
    shapes = (
        "zero = Constant<value = int64 {0}> () one = Constant<value = int64 {1}> () i = Constant<value = int64 {1}> () "
        "s = Shape(x) n = Gather(s, i) t = Shape(z) p = Gather(t, i) "
    )
    model = model_of("(float[b, n] x, float[b, p] z) => (int64[k] y)", shapes + body)
    graph = assert_agreement(model, {"x": reals(2, 5), "z": reals(2, 3)})
    assert graph.outputs["y"].type.shape == (length,)


def test_a_range_and_a_number_of_elements_that_the_data_determine():
    body = (
        "k = Abs(z) v, i = TopK<axis = 1>(x, k) "
        "zero = Constant<value = int64 {0}> () one = Constant<value = int64 {1}> () "
        "last = Squeeze(k) r = Range(zero, last, one)"
    )
    model = model_of("(float[n, m] x, int64[1] z) => (float[n, q] v, int64[n, q] i, int64[w] r)", body)
    inputs = {"x": reals(3, 5), "z": np.array([-2], np.int64)}
    got = Interpreter(import_model(model)).run(inputs)
    for output, wanted in zip(got.values(), session_of(model).run(None, inputs), strict=True):
        np.testing.assert_array_equal(output, wanted)


def test_bounds_that_are_inputs_of_the_graph_are_asked_for():
    model = model_of("(int64 n) => (int64[k] y)", "z = Constant<value = int64 {0}> () y = Range(z, n, n)")
    with pytest.raises(ConstantNeeded, match="'n'"):
        import_model(model)
    zero = model_of("(float[n] x) => (int64[k] y)", "z = Constant<value = int64 {0}> () y = Range(z, z, z)")
    with pytest.raises(CompilerError, match="cannot be 0"):
        import_model(zero)


def test_remainders_of_floats_rounded_down_are_as_in_numpy():
    """ONNX Runtime refuses the model."""
    model = model_of("(float[n] a, float[n] b) => (float[n] y)", "y = Mod(a, b)", opset=28)
    a, b = np.array([5.5, -5.5, 5.5, -5.5, 6, 0], np.float32), np.array([2, 2, -2, -2, 3, 3], np.float32)
    assert_agreement(model, {"a": a, "b": b}, wanted=[np.mod(a, b)], export=False)


def test_the_largest_of_older_opsets_and_of_integers():
    old = model_of("(float[n, 5] x) => (float[n, 2] v, int64[n, 2] i)", "v, i = TopK<k = 2>(x)", opset=9)
    assert_agreement(old, {"x": reals(3, 5)})
    body = "s = Shape(x) a = Constant<value = int64[1] {1}> () k = Gather(s, a) v, i = TopK<largest = 0>(x, k)"
    whole = model_of("(int64[n, m] x) => (int64[n, m] v, int64[n, m] i)", body)
    graph = assert_agreement(whole, {"x": RNG.integers(-9, 9, (3, 5))}, xla=False)
    assert graph.outputs["v"].type.shape == ("n", "m")
    with pytest.raises(CompilerError, match="fewer elements than k"):
        import_model(model_of("(float[n, 5] x) => (float[n, 9] v)", "v, i = TopK<k = 9>(x)", opset=9))


@pytest.mark.parametrize(
    ("equation", "shapes"),
    [
        ("bij,bjk->bik", [(2, 3, 4), (2, 4, 5)]),
        ("ij", [(3, 4)]),
        ("ii", [(3, 3)]),
        ("...ij,...jk->...ik", [(2, 3, 4), (2, 4, 6)]),
        ("b i j , b j k", [(2, 3, 4), (2, 4, 5)]),
        ("ij,jk,kl->il", [(2, 3), (3, 4), (4, 5)]),
        ("ij,jk->ik", [(2, 0), (0, 3)]),
    ],
)
def test_einsum(equation, shapes):
    axes = [", ".join(f"a{n}" if n != 1 else "1" for n in shape) for shape in shapes]
    inputs = ", ".join(f"float[{axis}] x{i}" for i, axis in enumerate(axes))
    names = ", ".join(f"x{i}" for i in range(len(shapes)))
    wanted = np.einsum(equation, *(arrays := [reals(*shape) for shape in shapes]))
    result = ", ".join(f"r{i}" for i in range(wanted.ndim))
    kind = f"float[{result}]" if result else "float"
    model = model_of(f"({inputs}) => ({kind} y)", f'y = Einsum<equation = "{equation}">({names})')
    assert_agreement(model, {f"x{i}": array for i, array in enumerate(arrays)}, wanted=[np.asarray(wanted)])


@pytest.mark.parametrize("equation", ["ij,jk->ik", "ijk->i"])
def test_equations_that_are_invalid(equation):
    with pytest.raises(CompilerError, match="do not fit"):
        import_model(model_of("(float[2, 3] x) => (float[k] y)", f'y = Einsum<equation = "{equation}">(x)'))
