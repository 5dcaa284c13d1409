"""If, Loop and Scan against ONNX Runtime: as the model is, with dynamic axes, and exported."""

import numpy as np
import onnx.parser
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2


def model_of(text):
    """Return the model of a graph `g` in ONNX's text form."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    onnx.checker.check_model(model)
    return model


KNOWN = """g (float[3] x) => (float[2] y) <float[2] k = {1.0, 2.0}, int64[2] i = {7, 9}, bool c = {1}> {
    y = If (c) <then_branch = a () => (p) { p = Identity(k) }, else_branch = b () => (q) { q = Gather(x, i) }> }"""
SEVERAL = """g (float[N,3] x, bool[1] c) => (float[N,3] y, float[N,3] z, float[3] s) <int64[1] axes = {0}> {
    y, z, s = If (c)
      <then_branch = a () => (float[N,3] p, float[N,3] p2, float[3] p3)
        { p = Softmax(x)  p2 = Identity(p)  p3 = ReduceSum<keepdims=0>(x, axes) },
       else_branch = b () => (float[N,3] q, float[N,3] q2, float[3] q3)
        { q = Softmax<axis=0>(x)  q2 = Identity(x)  q3 = ReduceMax<keepdims=0>(x, axes) }> }"""
UNROLLED = """g (float[2,3] x) => (float[2,3] y, float[4,2,3] s) <int64 n = {4}> {
    y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v) => (bool go, float[2,3] w, float[2,3] z)
      { go = Identity(c)  f = Cast<to=1>(i)  w = Add(v, f)  z = Mul(w, x) }> }"""
ENDS = """g (float[3] x) => (float[3] y) <int64 last = {2}, bool t = {1}> {
    y = Loop(, t, x) <body = b (int64 i, bool c, float[3] v) => (bool go, float[3] w)
      { go = Less(i, last)  w = Add(v, x) }> }"""
NESTED = """g (float[2,3] x) => (float[2,3] y) <int64 n = {3}> {
    y = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v) => (bool go, float[2,3] w)
      { go = Identity(c)
        w = Loop(i, , v) <body = bb (int64 j, bool c2, float[2,3] v2) => (bool go2, float[2,3] p1)
            { go2 = Identity(c2)  f = Cast<to=1>(i)  p0 = Add(v2, f)  p1 = Sub(p0, x) }> }> }"""
NO_ITERATION = """g (float[3] x) => (float[3] y) <int64 n = {7}, bool t = {0}> {
    y = Loop(n, t, x) <body = b (int64 i, bool c, float[3] v) => (bool go, float[3] w)
      { go = Identity(c)  w = Sin(v) }> }"""


@pytest.mark.parametrize("text", [KNOWN, UNROLLED, ENDS, NESTED, NO_ITERATION])
def test_known_conditions_and_numbers_of_iterations(text):
    x = X if "float[2,3] x" in text else X[0]
    agree(model_of(text), {"x": x}, rtol=1e-5, atol=1e-5)


@pytest.mark.parametrize("c", [True, False])
def test_branches_with_results_of_the_same_types_become_a_where(c):
    agree(model_of(SEVERAL), {"x": X, "c": np.array([c])}, rtol=1e-5, atol=1e-5)


def test_quantised_values_of_a_body():
    """Variables and sequences of quantised integers, which a body dequantises and quantises."""
    model = model_of(
        """g (float[3, 2] x, float[2] h) => (uint8[2] y, uint8[3, 2] o)
        <float s = {0.1}, uint8 z = {10}> {
        q = QuantizeLinear(x, s, z)  v = QuantizeLinear(h, s, z)
        y, o = Scan<num_scan_inputs=1, body = b (uint8[2] v0, uint8[2] e) => (uint8[2] w, uint8[2] copy) {
          a = DequantizeLinear(v0, s, z)  d = DequantizeLinear(e, s, z)  sum = Add(a, d)
          w = QuantizeLinear(sum, s, z)  copy = Identity(w) }>(v, q) }"""
    )
    agree(model, {"x": np.arange(6, dtype=np.float32).reshape(3, 2) / 4, "h": X[0, :2]}, open_axes=False)


@pytest.mark.parametrize("directions", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("axes", [(0, 0), (1, -1), (-2, 1)])
def test_scan(axes, directions):
    """Along any axis in both directions."""
    shape = [[3, 2], [2, 3]][axes[0] % 2]
    out = [[3, 2], [2, 3]][axes[1] % 2]
    options = f"num_scan_inputs=1, scan_input_axes=[{axes[0]}], scan_input_directions=[{directions[0]}]"
    options += f", scan_output_axes=[{axes[1]}], scan_output_directions=[{directions[1]}]"
    model = model_of(
        f"""g (float{shape} x, float[2] h) => (float[2] y, float{out} o) {{
        y, o = Scan<{options}, body = b (float[2] v, float[2] e) => (float[2] w, float[2] z)
          {{ a = Add(v, e)  w = Tanh(a)  z = Neg(a) }}>(h, x) }}"""
    )
    x = np.random.default_rng(1).standard_normal(shape).astype(np.float32)
    agree(model, {"x": x, "h": X[0, :2]}, open_axes=False, rtol=1e-5, atol=1e-6)


def test_the_number_of_iterations_must_be_known():
    model = model_of("""g (float[5] x, int64 n) => (float[1] y) <float[1] zero = {0.0}, int64[1] one = {1}> {
        y = Loop(n, , zero) <body = b (int64 i, bool c, float[1] v) => (bool go, float[1] w)
          { go = Identity(c)  s = Reshape(i, one)  e = Add(s, one)  p = Slice(x, s, e)  w = Add(v, p) }> }""")
    with pytest.raises(ConstantNeeded, match="'n' is an input of the graph"):
        import_model(model)
    graph = import_model(model, constants={"n": np.array(3)})
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(Interpreter(graph).run({"x": x})["y"], x[:3].sum(keepdims=True))


BY_DATA = """g (float[3] x) => (float[3] y) {
    y = Loop(, , x) <body = b (int64 i, bool c, float[3] v) => (bool go, float[3] w)
      { w = Add(v, x)  h = Constant<value_float=50.0>()  m = ReduceL1<keepdims=0>(w)  go = Less(m, h) }> }"""
LENGTHS = """g (float[N,3] x, bool c) => (float[M,3] y) {
    y = If (c) <then_branch = a () => (float[K,3] p) { p = Concat<axis=0>(x, x) },
                else_branch = b () => (float[L,3] q) { q = Identity(x) }> }"""
SEQUENCE = """g (float[N,2] x, float[2] h) => (float[2] y) {
    y = Scan<num_scan_inputs=1, body = b (float[2] v, float[2] e) => (float[2] w) { w = Add(v, e) }>(h, x) }"""
COLLECTS = """g (float[3] x) => (float[3] y, float[K,3] s) <int64 n = {0}> {
    y, s = Loop(n, , x) <body = b (int64 i, bool c, float[3] v) => (bool go, float[3] w, float[3] z)
      { go = Identity(c)  w = Sin(v)  z = Cos(v) }> }"""


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (BY_DATA, "data decide when the loop ends"),
        (LENGTHS, "'c' is an input of the graph"),
        (SEQUENCE, "the length 'N' of a sequence must be known"),
        (COLLECTS, "a loop without iterations collects nothing"),
    ],
)
def test_what_cannot_be_unrolled(text, message):
    with pytest.raises(CompilerError, match=message):
        import_model(model_of(text))
