"""If, Loop and Scan against ONNX Runtime: as the model is, with dynamic axes, and exported."""

import numpy as np
import onnx.parser
import pytest

import mlhood
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.bundle import write_bundle
from mlhood.compiler.hir import Graph, TensorType, verify
from mlhood.compiler.hir.draw import draw
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.lir import parse as lir_parse
from mlhood.compiler.lir.execute import execute
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.text import to_text as lir_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.control_flow import If
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import agree, session_of

X = np.arange(6, dtype=np.float32).reshape(2, 3) - 2
YES, NO = np.array(True), np.array(False)


def model_of(text):
    """Return the model of a graph `g` in ONNX's text form."""
    model = onnx.parser.parse_model(f'<ir_version: 9, opset_import: ["" : 18]>\n{text}')
    onnx.checker.check_model(model)
    return model


def operators_of(graph):
    return {node.operator.name for node in graph.nodes.values()}


INDEX = """g (float[3] x, int64[2] i, bool c) => (float[2] y) <float[2] k = {1.0, 2.0}> {
    y = If (c) <then_branch = a () => (p) { p = Identity(k) }, else_branch = b () => (q) { q = Gather(x, i) }> }"""
LENGTHS = """g (float[N,3] x, bool c) => (float[M,3] y) {
    y = If (c) <then_branch = a () => (float[K,3] p) { p = Concat<axis=0>(x, x) },
                else_branch = b () => (float[L,3] q) { q = Identity(x) }> }"""
SEVERAL = """g (float[N,3] x, bool[1] c) => (float[N,3] y, float[N,3] z, float[3] s) <int64[1] axes = {0}> {
    y, z, s = If (c)
      <then_branch = a () => (float[N,3] p, float[N,3] p2, float[3] p3)
        { p = Softmax(x)  p2 = Identity(p)  p3 = ReduceSum<keepdims=0>(x, axes) },
       else_branch = b () => (float[N,3] q, float[N,3] q2, float[3] q3)
        { q = Softmax<axis=0>(x)  q2 = Identity(x)  q3 = ReduceMax<keepdims=0>(x, axes) }> }"""
ENDS = """g (float[2,3] x, int64 n) => (float[2,3] y, float[k,2,3] s) <float most = {20.0}> {
    y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v) => (bool go, float[2,3] w, float[2,3] z)
      { a = Constant<value_float=1.5>()  m = Mul(v, a)  w = Add(m, a)  z = Neg(w)
        r = ReduceMax<keepdims=0>(w)  go = Less(r, most) }> }"""
WHILE = """g (float[3] x) => (float[3] y, int64 k) <int64 n = {9223372036854775807}, bool t = {1}, int64 zero = {0}> {
    y, k = Loop(n, t, x, zero) <body = b (int64 i, bool c, float[3] v, int64 d) => (bool go, float[3] w, int64 e)
      { one = Constant<value_int=1>()  e = Add(d, one)  f = Constant<value_float=1.1>()  w = Mul(v, f)
        h = Constant<value_float=50.0>()  m = ReduceL1<keepdims=0>(w)  go = Less(m, h) }> }"""
GROWS = """g (float[N,3] x, int64 n) => (float[M,3] y) {
    y = Loop(n, , x) <body = b (int64 i, bool c, float[P,3] v) => (bool go, float[Q,3] w)
      { go = Identity(c)  w = Concat<axis=0>(v, x) }> }"""
PASSES = """g (float[3] x, int64 n, bool t) => (float[3] y, float[3] z, float[K,3] s, float[K,3] s2) {
    y, z, s, s2 = Loop(n, t, x, x)
      <body = b (int64 i, bool c, float[3] v, float[3] u) => (bool go, float[3] w, float[3] w2, float[3] z, float[3] z2)
        { go = Identity(c)  w = Identity(u)  w2 = Identity(x)  z = Identity(v)  z2 = Identity(v) }> }"""
NESTED = """g (float[2,3] x, int64 n, bool t) => (float[2,3] y) {
    y = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v) => (bool go, float[2,3] w)
      { go = Identity(c)  two = Constant<value_int=2>()  r = Mod(i, two)  e = Cast<to=9>(r)  both = Or(e, t)
        w = If(both) <then_branch = a () => (float[2,3] p) { p0 = Softmax(v)  p = Add(p0, x) },
                      else_branch = d () => (float[2,3] p) {
          p = Loop(i, , v) <body = bb (int64 j, bool c2, float[2,3] v2) => (bool go2, float[2,3] p1)
            { go2 = Identity(c2)  f = Cast<to=1>(i)  p0 = Add(v2, f)  p1 = Sub(p0, x) }> }> }> }"""
FOUND = """g (float[N] x, bool c, int64 n) => (int64[1,M] y, int64[1,L] z) <int64[1] zero = {0}> {
    y = If(c) <then_branch = a () => (int64[1,K] p) { p = NonZero(x) },
               else_branch = b () => (int64[1,L] p) { r = Relu(x)  p = NonZero(r) }>
    z = Loop(n, , y) <body = b (int64 i, bool c2, int64[1,A] v) => (bool go, int64[1,B] w)
      { go = Identity(c2)  u = Squeeze(v, zero)  g = Gather(x, u)  m = Neg(g)  r = Relu(m)  w = NonZero(r) }> }"""
UNROLLED = """g (float[2,3] x) => (float[2,3] y, float[4,2,3] s) <int64 n = {4}> {
    y, s = Loop(n, , x) <body = b (int64 i, bool c, float[2,3] v) => (bool go, float[2,3] w, float[2,3] z)
      { go = Identity(c)  f = Cast<to=1>(i)  w = Add(v, f)  z = Mul(w, x) }> }"""
LONG = """g (float[3] x) => (float[3] y, float[5000,3] s) <int64 n = {5000}> {
    y, s = Loop(n, , x) <body = b (int64 i, bool c, float[3] v) => (bool go, float[3] w, float[3] z)
      { go = Identity(c)  f = Constant<value_float=0.9>()  m = Mul(v, f)  w = Add(m, x)  z = Sin(w) }> }"""
NO_ITERATION = """g (float[3] x) => (float[3] y, float[K,3] s) <int64 n = {7}, bool t = {0}> {
    y, s = Loop(n, t, x) <body = b (int64 i, bool c, float[3] v) => (bool go, float[3] w, float[3] z)
      { go = Identity(c)  w = Sin(v)  z = Cos(v) }> }"""

CASES = {
    "the branch not taken would fail": (INDEX, [{"x": X[0], "i": np.array([7, 9]), "c": YES}], {"If"}),
    "the other branch": (INDEX, [{"x": X[0], "i": np.array([2, 0]), "c": NO}], {"If"}),
    "branches of different lengths": (LENGTHS, [{"x": X, "c": c} for c in (YES, NO)], {"If"}),
    "several outputs": (SEVERAL, [{"x": X, "c": c.reshape(1)} for c in (YES, NO)], {"If"}),
    "data end the loop": (ENDS, [{"x": X, "n": np.array(n)} for n in (0, 1, 3, 50)], {"Loop"}),
    "while": (WHILE, [{"x": X[0]}], {"Loop"}),
    "a variable that grows": (GROWS, [{"x": X, "n": np.array(n)} for n in (0, 1, 3)], {"Loop"}),
    "values that pass through": (
        PASSES,
        [{"x": X[0], "n": np.array(n), "t": t} for n in (0, 2) for t in (YES, NO)],
        {"Loop"},
    ),
    "graphs in graphs": (NESTED, [{"x": X, "n": np.array(n), "t": t} for n in (0, 4) for t in (YES, NO)], {"Loop"}),
    "lengths that data decide": (
        FOUND,
        [{"x": X.ravel(), "n": np.array(n), "c": c} for n in (0, 1) for c in (YES, NO)],
        {"If", "Loop"},
    ),
    "unrolled": (UNROLLED, [{"x": X}], set()),
    "too long to unroll": (LONG, [{"x": X[0]}], {"Loop"}),
    "no iteration": (NO_ITERATION, [{"x": X[0]}], {"Loop"}),
}


@pytest.mark.parametrize(("text", "inputs", "kept"), CASES.values(), ids=CASES)
def test_control_flow(text, inputs, kept):
    model = model_of(text)
    for each in inputs:
        # of a loop that collects nothing, ONNX Runtime knows the lengths that are declared only
        open_axes = each.get("n") != 0 and text != NO_ITERATION and each.get("t") is not NO
        agree(model, each, open_axes=open_axes, rtol=1e-5, atol=1e-5)
    graph = import_model(model)
    assert operators_of(graph) & {"If", "Loop"} == kept
    written = to_text(graph)
    assert to_text(parse(written, constants_by_digest(graph))) == written
    program = lower(graph)
    assert lir_text(lir_parse.parse(lir_text(program), lir_parse.constants_by_digest(program))) == lir_text(program)
    assert draw(graph) is not None


@pytest.mark.parametrize("length", ["3", "S"])
def test_quantised_values_of_a_body(length):
    """Variables and sequences of quantised integers, which a body dequantises and quantises."""
    model = model_of(
        f"""g (float[{length}, 2] x, float[2] h) => (uint8[2] y, uint8[{length}, 2] o)
        <float s = {{0.1}}, uint8 z = {{10}}> {{
        q = QuantizeLinear(x, s, z)  v = QuantizeLinear(h, s, z)
        y, o = Scan<num_scan_inputs=1, body = b (uint8[2] v0, uint8[2] e) => (uint8[2] w, uint8[2] copy) {{
          a = DequantizeLinear(v0, s, z)  d = DequantizeLinear(e, s, z)  sum = Add(a, d)
          w = QuantizeLinear(sum, s, z)  copy = Identity(w) }}>(v, q) }}"""
    )
    agree(model, {"x": np.arange(6, dtype=np.float32).reshape(3, 2) / 4, "h": X[0, :2]})


@pytest.mark.parametrize("length", [3, "S"])
@pytest.mark.parametrize("directions", [(0, 0), (0, 1), (1, 0), (1, 1)])
@pytest.mark.parametrize("axes", [(0, 0), (1, -1), (-2, 1)])
def test_scan(axes, directions, length):
    """Along any axis in both directions: unrolled where its length is known, else with outputs of the same length."""
    across, along = (axes[0] % 2, 1 - axes[0] % 2), axes[1] % 2
    shape = [[length, 2][i] for i in across]
    out = [length, 2] if along == 0 else [2, length]
    options = f"num_scan_inputs=1, scan_input_axes=[{axes[0]}], scan_input_directions=[{directions[0]}]"
    options += f", scan_output_axes=[{axes[1]}], scan_output_directions=[{directions[1]}]"
    model = model_of(
        f"""g (float{shape} x, float[2] h) => (float[2] y, float{out} o, float{out} sum) {{
        y, o = Scan<{options}, body = b (float[2] v, float[2] e) => (float[2] w, float[2] z)
          {{ a = Add(v, e)  w = Tanh(a)  z = Neg(a) }}>(h, x)  sum = Add(o, o) }}""".replace("'", "")
    )
    x = np.random.default_rng(1).standard_normal([3 if size == length else 2 for size in shape]).astype(np.float32)
    agree(model, {"x": x, "h": X[0, :2]}, rtol=1e-5, atol=1e-6)
    graph = import_model(model)
    assert ("Dynamic" in operators_of(graph)) == (length == "S")
    assert graph.outputs["o"].type.shape == tuple(out)
    compiled = mlhood.compile(model, target="cpu", dims={"S": 3} if length == "S" else None)
    wanted = session_of(model).run(None, {"x": x, "h": X[0, :2]})
    for got, expected in zip(compiled.run(x=x, h=X[0, :2]).values(), wanted, strict=True):
        np.testing.assert_allclose(got, expected, rtol=1e-5, atol=1e-6)


UNARY = ("Relu", "Neg", "Tanh", "Sigmoid", "Abs", "Softmax")
BINARY = ("Add", "Sub", "Mul", "Max")


def random_body(rng, depth, values, prefix):
    """Return statements that compute a float[2,3] from others, and its name: operators, loops and branches."""
    lines, values = [], list(values)
    for i in range(int(rng.integers(1, 4))):
        name = f"{prefix}_{i}"
        kind = rng.integers(0, 4 if depth else 2)
        a, b = (values[int(rng.integers(len(values)))] for _ in range(2))
        if kind == 0:
            lines.append(f"{name} = {UNARY[int(rng.integers(len(UNARY)))]}({a})")
        elif kind == 1:
            lines.append(f"{name} = {BINARY[int(rng.integers(len(BINARY)))]}({a}, {b})")
        elif kind == 2:
            graphs = []
            for branch in ("then", "else"):
                inner, last = random_body(rng, depth - 1, values, f"{name}{branch[0]}")
                graphs.append(f"{branch}_branch = {branch} () => (float[2,3] {last}) {{ {inner} }}")
            lines.append(f"{name}s = ReduceSum<keepdims=0>({a})  {name}z = Sub({a}, {a})")
            lines.append(f"{name}zs = ReduceSum<keepdims=0>({name}z)  {name}c = Greater({name}s, {name}zs)")
            lines.append(f"{name} = If({name}c) <{', '.join(graphs)}>")
        else:
            inner, last = random_body(rng, depth - 1, [*values, f"{name}v"], f"{name}l")
            count = ("n", "two")[int(rng.integers(2))]
            body = f"body (int64 {name}i, bool {name}g, float[2,3] {name}v) => (bool {name}h, float[2,3] {last})"
            lines.append(f"{name} = Loop({count}, , {b}) <body = {body} {{ {name}h = Identity({name}g)  {inner} }}>")
        values.append(name)
    return "  ".join(lines), values[-1]


@pytest.mark.parametrize("seed", range(25))
def test_random_graphs(seed):
    rng = np.random.default_rng(seed)
    lines, last = random_body(rng, 3, ["x", "x2"], "t")
    model = model_of(f"""g (float[2,3] x, float[2,3] x2, int64 n) => (float[2,3] y) <int64 two = {{2}}> {{
        {lines}  y = Identity({last}) }}""")
    inputs = {"x": rng.standard_normal((2, 3)).astype(np.float32), "x2": X, "n": np.array(rng.integers(0, 4))}
    agree(model, inputs, rtol=1e-4, atol=1e-5)


def test_only_the_branch_that_is_chosen_runs():
    """On every target; an index out of range is an error in the branch that is taken."""
    model = model_of(INDEX)
    for target in ("interpreter", "cpu", "xla", "naive"):
        executable = mlhood.compile(model, target=target)
        np.testing.assert_array_equal(executable.run(x=X[0], i=np.array([7, 9]), c=YES)["y"], [1, 2])
        np.testing.assert_array_equal(executable.run(x=X[0], i=np.array([2, 0]), c=NO)["y"], X[0, [2, 0]])
    with pytest.raises(CompilerError, match="out of range"):
        mlhood.compile(model).run(x=X[0], i=np.array([7, 9]), c=NO)


def test_a_branch_that_lengths_forbid_does_not_run():
    model = model_of("""g (float[N] x, bool c) => (float[M] y) <float[2] k = {1.0, 2.0}> {
        y = If (c) <then_branch = a () => (float[2] p) { p = Add(x, k) },
                    else_branch = b () => (float[N] q) { q = Relu(x) }> }""")
    for x, c in ((X[0], NO), (X[0, :2], YES), (X[0, :2], NO)):
        agree(model, {"x": x, "c": c})
    with pytest.raises(CompilerError, match="broadcast"):
        mlhood.compile(model).run(x=X[0], c=YES)


def test_elementwise_branches_become_a_where_which_c_has(tmp_path):
    model = model_of("""g (float[2,3] x, bool c) => (float[2,3] y) {
        y = If (c) <then_branch = a () => (float[2,3] p) { k = Constant<value_float=2.0>()  p = Mul(x, k) },
                    else_branch = b () => (float[2,3] q) { q = Relu(x) }> }""")
    graph = import_model(model)
    assert operators_of(graph) == {"Mul", "Relu", "Reshape", "Where"}
    for c in (YES, NO):
        agree(model, {"x": X, "c": c})
    write_bundle(model, tmp_path)
    with pytest.raises(CompilerError, match="some operators of the model have no C"):
        write_bundle(model_of(WHILE), tmp_path)


def test_a_loop_that_can_only_be_unrolled_needs_the_number_of_iterations():
    model = model_of("""g (float[5] x, int64 n) => (float[1] y) <float[1] zero = {0.0}, int64[1] one = {1}> {
        y = Loop(n, , zero) <body = b (int64 i, bool c, float[1] v) => (bool go, float[1] w)
          { go = Identity(c)  s = Reshape(i, one)  e = Add(s, one)  p = Slice(x, s, e)  w = Add(v, p) }> }""")
    with pytest.raises(ConstantNeeded, match="'n' is an input of the graph"):
        import_model(model)
    graph = import_model(model, constants={"n": np.array(3)})
    x = np.arange(5, dtype=np.float32)
    np.testing.assert_array_equal(Interpreter(graph).run({"x": x})["y"], x[:3].sum(keepdims=True))


def test_a_program_with_an_if_is_executed():
    graph = import_model(model_of(SEVERAL), dims={"N": 2})
    got = execute(lower(graph), x=X, c=YES.reshape(1))
    wanted = session_of(model_of(SEVERAL)).run(None, {"x": X, "c": YES.reshape(1)})
    for array, expected in zip(got.values(), wanted, strict=True):
        np.testing.assert_allclose(array, expected, rtol=1e-6)


def test_a_graph_in_an_operator_is_verified():
    def branch(constant):
        inner = Graph("inner")
        x = inner.placeholder("x", TensorType("float32", (2,)))
        inner.output(inner.add(Relu(), x).outputs[0])
        if constant:
            inner.constant("k", np.zeros(2, np.float32))
        return inner

    for broken in (False, True):
        graph = Graph()
        x = graph.placeholder("x", TensorType("float32", (2,)))
        c = graph.placeholder("c", TensorType("bool", ()))
        node = graph.add(If("y", branch(False), branch(broken)), c, x, x)
        graph.output(node.outputs[0])
        if broken:
            with pytest.raises(CompilerError, match="has constants"):
                verify(graph)
        else:
            verify(graph)
    with pytest.raises(CompilerError, match="wrong number of inputs of the branches"):
        graph.add(If("y", branch(False), branch(False)), c, x)
    with pytest.raises(CompilerError, match="wrong condition"):
        graph.add(If("y", branch(False), branch(False)), x, x, x)
