"""Operators with attributes that depend on dynamic dimensions, against ONNX Runtime: on all targets."""

import numpy as np
import onnx
import pytest

from mlhood import compile as compile_model
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import session_of


def model_of(inputs, outputs, body):
    """Return a model in ONNX's text form."""
    return onnx.parser.parse_model(
        f'<ir_version: 8, opset_import: ["": 18]> test ({inputs}) => ({outputs}) {{ {body} }}'
    )


def check(model, *batches, targets=("interpreter", "cpu", "xla")):
    """Compare one executable of each target, and one for given lengths, with ONNX Runtime."""
    executables = [compile_model(model, target) for target in targets]
    session = session_of(model)
    for inputs in batches:
        wanted = session.run(None, inputs)[0]
        fixed = compile_model(model, "interpreter", dims=lengths_of(model, inputs))
        for executable in (*executables, fixed):
            y = executable.run(**inputs)["y"]
            assert (y.dtype, y.shape) == (wanted.dtype, wanted.shape)
            np.testing.assert_allclose(y, wanted, rtol=1e-5, atol=1e-6)


def lengths_of(model, inputs):
    axes = [(dim.dim_param, value.name, i) for value in model.graph.input for i, dim in enumerate(shape_of(value))]
    return {name: inputs[value].shape[i] for name, value, i in axes if name}


def shape_of(value):
    return value.type.tensor_type.shape.dim


def test_concat_takes_an_open_axis_beside_a_number():
    body = "k = Constant<value = float[2, 1] {1, 1}> () y = Concat<axis = 1> (x, k)"
    model = model_of("float[N, 3] x", "float[a, b] y", body)
    check(model, {"x": np.ones((2, 3), np.float32)})
    with pytest.raises(CompilerError):
        compile_model(model, "cpu").run(x=np.ones((3, 3), np.float32))


# What exporters write for an axis n of x [2, n, 4], with n as a scalar and "ns" as a list of one number.
PREFIX = """
    zero = Constant<value_ints = [0]> () one = Constant<value_ints = [1]> () two = Constant<value_ints = [2]> ()
    minus = Constant<value_ints = [-1]> () end = Constant<value_ints = [9223372036854775807]> ()
    i = Constant<value_int = 1> () nothing = Constant<value_int = 0> () four = Constant<value_ints = [4]> ()
    s = Shape(x) n = Gather(s, i) ns = Shape<start = 1, end = 2> (x)
"""
TAIL = "a = Slice(x, one, end, one) b = Slice(x, zero, minus, one)"
HALF = "half = Div(ns, two)"
TOKEN = "token = Constant<value = float[1, 1, 1] {1.5}> ()"
BODIES = {
    "differences": f"{TAIL} y = Sub(a, b)",
    "shape of a tail": f"{TAIL} t = Shape(a) z = ConstantOfShape(t) y = Concat<axis = 1> (z, b)",
    "roll": "m = Mod(minus, ns) a = Slice(x, m, end, one) b = Slice(x, zero, m, one) c = Concat<axis = 1> (a, b) "
    "y = Add(c, x)",
    "halves": f"{HALF} a = Slice(x, half, end, one) b = Slice(x, zero, half, one) c = Concat<axis = 1> (a, b) "
    "y = Add(c, x)",
    "a half, mirrored": f"{HALF} y = Slice(x, half, minus, one, minus)",
    "from the end": f"{HALF} m = Neg(half) y = Slice(x, m, end, one)",
    "end of unknown sign": f"{HALF} m = Sub(half, two) y = Slice(x, m, end, one)",
    "pad to a multiple": "r = Mod(ns, four) d = Sub(four, r) p = Mod(d, four) ps = Concat<axis = 0> (zero, p) "
    "q = Pad(x, ps, , one) t = Constant<value_ints = [2, -1, 4, 4]> () y = Reshape(q, t)",
    "windows": "m = Mul(ns, two) a = Concat<axis = 0> (m, four, minus) y = Reshape(x, a)",
    "real factor": "f = Cast<to = 1> (ns) h = Constant<value_floats = [1.5]> () g = Mul(f, h) k = Floor(g) "
    "m = Cast<to = 7> (k) t = Concat<axis = 0> (two, m, four) c = Constant<value_float = 1.0> () y = Expand(c, t)",
    "smaller of two": "f = Constant<value_ints = [5]> () m = Min(ns, f) y = Slice(x, zero, m, one)",
    "a choice": "f = Constant<value_ints = [5]> () c = Less(ns, f) m = Where(c, one, two) "
    "t = Concat<axis = 0> (one, m, two) y = Tile(x, t)",
    "largest half": f"{HALF} m = Add(half, one) v, k = TopK<axis = 1> (x, m) y = Identity(v)",
    "even parts": "a, b = Split<axis = 1, num_outputs = 2> (x) y = Concat<axis = 1> (b, a)",
    "computed parts": f"{HALF} m = Sub(ns, half) p = Concat<axis = 0> (half, m) a, b = Split<axis = 1> (x, p) "
    "y = Concat<axis = 1> (b, a)",
    "one-hot": "a = ArgMax<axis = 1, keepdims = 0> (x) v = Constant<value_floats = [0.0, 1.0]> () y = OneHot(a, n, v)",
    "mask": "l = Constant<value_int = 1> () r = Range(nothing, n, l) u = Unsqueeze(r, one) c = Less(r, u) "
    "f = Cast<to = 1> (c) y = MatMul(f, x)",
    "every second": "a = Slice(x, zero, end, one, two) b = Slice(x, one, end, one, two) c = Concat<axis = 1> (a, b) "
    "y = Add(c, x)",
    "table": "t = Constant<value = float[3, 1] {1, 2, 3}> () a = Slice(t, zero, ns, zero) y = Concat<axis = 0> (a, t)",
    "expand a token": f"{TOKEN} r = Concat<axis = 0> (two, ns, one) t = Expand(token, r) y = Concat<axis = 2> (t, x)",
    "fill with zeros": "r = Concat<axis = 0> (two, ns, four) z = ConstantOfShape(r) y = Add(x, z)",
    "fill a product": "e = Constant<value_ints = [8]> () m = Mul(ns, e) z = ConstantOfShape(m) v = Reshape(x, minus) "
    "y = Add(v, z)",
    "torch's expand of -1": f"{TOKEN} three = Constant<value_ints = [3]> () o = ConstantOfShape(three) "
    "o64 = Cast<to = 7> (o) p = Add(o64, one) r = Concat<axis = 0> (minus, ns, four) q = Equal(r, minus) "
    "e = Where(q, p, r) t = Expand(token, e) y = Add(t, x)",
    "tile": f"{TOKEN} r = Concat<axis = 0> (one, ns, four) t = Tile(token, r) y = Add(x, t)",
    "split": "r = Concat<axis = 0> (ns, one, minus) t = Transpose<perm = [1, 0, 2]> (x) y = Reshape(t, r)",
    "half of twice": "m = Mul(ns, two) h = Div(m, two) r = Concat<axis = 0> (h, two, four) y = Reshape(x, r)",
    "slice all": "y = Slice(x, zero, ns, one)",
    "twice": "y = Concat<axis = 1> (x, x)",
    "mean": "f = Cast<to = 1> (ns) y = Div(x, f)",
}
RANKS = {"pad to a multiple": 4, "table": 2, "fill a product": 1}


@pytest.mark.parametrize("body", BODIES)
def test_shapes_are_computed_as_exporters_write_it(body):
    names = ", ".join("abcd"[: RANKS.get(body, 3)])
    model = model_of("float[2, n, 4] x", f"float[{names}] y", f"{PREFIX} {BODIES[body]}")
    rng = np.random.default_rng(0)
    check(model, *({"x": rng.standard_normal((2, n, 4)).astype(np.float32)} for n in (1, 2, 5, 8)))


@pytest.mark.parametrize("mode", ["nearest", "linear"])
@pytest.mark.parametrize(
    ("body", "shapes"),
    [
        (
            "p = MaxPool<kernel_shape = [2, 2], strides = [2, 2]> (x) s = Shape(x) y = Resize(p, , , s)",
            [(2, 2), (7, 3)],
        ),
        ("f = Constant<value_floats = [1.0, 1.0, 1.5, 0.5]> () y = Resize(x, , f)", [(5, 6), (1, 3), (0, 2)]),
    ],
)
def test_resize_to_the_size_of_another_tensor_or_by_scales(body, shapes, mode):
    body = body.replace("Resize", f'Resize<mode = "{mode}">')
    model = model_of("float[1, 2, h, w] x", "float[a, b, c, d] y", body)
    rng = np.random.default_rng(0)
    inputs = [{"x": rng.standard_normal((1, 2, *shape)).astype(np.float32)} for shape in shapes]
    check(model, *inputs, targets=("interpreter", "cpu"))


def test_same_padding_with_a_stride():
    body = 'y = MaxPool<auto_pad = "SAME_UPPER", kernel_shape = [3], strides = [2]> (x)'
    model = model_of("float[1, 2, n] x", "float[a, b, c] y", body)
    for target in ("interpreter", "cpu", "xla"):
        executable = compile_model(model, target)
        for n in (1, 4, 7):
            x = np.random.default_rng(n).standard_normal((1, 2, n)).astype(np.float32)
            wanted = session_of(model).run(None, {"x": x})[0]
            np.testing.assert_array_equal(executable.run(x=x)["y"], wanted)
    with pytest.raises(CompilerError, match="pads"):
        to_onnx(compile_model(model, stop_after="optimized"))


def test_dimensions_of_different_names_are_compared_at_run_time():
    body = "w = Add(x, z) s = Shape(w) o = Expand(z, s) y = Mul(o, w)"
    model = model_of("float[a, 3] x, float[b, 3] z", "float[c, d] y", body)
    shapes = [(4, 4), (1, 4), (4, 1)]
    ones = [{"x": np.ones((a, 3), np.float32), "z": np.full((b, 3), 2, np.float32)} for a, b in shapes]
    check(model, *ones)
    for target in ("interpreter", "cpu", "xla"):
        with pytest.raises(CompilerError):
            compile_model(model, target).run(x=np.ones((4, 3), np.float32), z=np.ones((2, 3), np.float32))


def test_squeeze_without_axes_on_an_open_axis_is_refused():
    model = model_of("float[N, 3, 1] x", "float[a, b] y", "y = Squeeze(x)")
    with pytest.raises(CompilerError, match="dims="):
        compile_model(model)


def test_the_length_of_a_computed_shape_is_refused_kindly():
    with pytest.raises(CompilerError, match="known at compile time"):
        compile_model(model_of("float[2] x", "float[a, b] y", "s = Cast<to = 7> (x) y = ConstantOfShape(s)"))
