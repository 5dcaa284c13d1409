"""Functions of a model are inlined with the defaults of their attributes, against ONNX Runtime."""

import numpy as np
import onnx.parser
import onnxruntime
import pytest
from onnx import helper

import mlhood

X = np.float32([-1, -2, 0, 3])
GRAPH = """
<ir_version: 10, opset_import: ["" : 18, "local" : 1, "other" : 1]>
agraph (float[4] x, bool c) => (float[4] y, float[4] z) { BODY }
"""
TWO_CALLS = "y = local.f (x)  z = local.f <alpha = 0.7> (x)"
LEAKY = """<opset_import: [ "" : 18 ], domain: "local"> f <alpha: float = 0.2> (x) => (y)
{ y = LeakyRelu <alpha: float = @alpha> (x) }"""
PLAIN = LEAKY.replace("alpha: float = 0.2", "alpha")
INNER = """<opset_import: [ "" : 18 ], domain: "other"> g <beta: float = 0.3> (x) => (y)
{ y = LeakyRelu <alpha: float = @beta> (x) }"""
OUTER = """<opset_import: [ "" : 18, "other" : 1 ], domain: "local"> f <ATTRIBUTE> (x) => (y)
{ t = other.g (x)  y = other.g <beta: float = @alpha> (t) }"""
IN_BRANCHES = """
y = If (c) <then_branch = a () => (float[4] t) { t = local.f (x) }, else_branch = b () => (float[4] e) { e = Neg (x) }>
z = If (c) <then_branch = a () => (float[4] u) { u = Neg (x) }, else_branch = b () => (float[4] v) { v = local.f (x) }>
"""
MODELS = {
    "a default": [TWO_CALLS, LEAKY],
    "no default": [TWO_CALLS, PLAIN],
    "nested, a default passed on": [TWO_CALLS, OUTER.replace("ATTRIBUTE", "alpha: float = 0.2"), INNER],
    "nested, nothing passed on": [TWO_CALLS, OUTER.replace("ATTRIBUTE", "alpha"), INNER],
    "called in branches": [IN_BRANCHES, LEAKY],
    "called both directly and by another": [
        "y = other.g (x)  z = local.f (x)",
        OUTER.replace("ATTRIBUTE", "alpha"),
        INNER,
    ],
    "a branch in a function": [
        "y = local.f (c, x)  z = local.f <alpha = 0.5> (c, x)",
        """<opset_import: [ "" : 18 ], domain: "local"> f <alpha: float = 0.2> (c, x) => (y)
        { y = If (c) <then_branch = a () => (float[4] t) { t = LeakyRelu <alpha: float = @alpha> (x) },
                      else_branch = b () => (float[4] e) { e = LeakyRelu (x) }> }""",
    ],
    "a default list": [
        "t = local.f (x)  y = Squeeze (t)  u = local.f <axes = [1]> (x)  z = Squeeze (u)",
        """<opset_import: [ "" : 18 ], domain: "local"> f <axes: ints = [0]> (x) => (y)
        { a = Constant <value_ints: ints = @axes> ()  y = Unsqueeze (x, a) }""",
    ],
    "the name of a standard operator": [
        "y = Relu (x)  z = Neg (x)",
        """<opset_import: [ "" : 18 ], domain: ""> Relu (x) => (y) { y = Abs (x) }""",
    ],
}


@pytest.mark.parametrize("name", MODELS)
def test_functions_compute_what_onnx_runtime_computes(name):
    body, *functions = MODELS[name]
    model = onnx.parser.parse_model(GRAPH.replace("BODY", body) + "\n".join(functions))
    session = onnxruntime.InferenceSession(model.SerializeToString())
    for condition in (True, False):
        feeds = {"x": X, "c": np.array(condition)}
        for target in ("interpreter", "cpu"):
            got = mlhood.compile(model, target).run(feeds)
            for output, expected in zip("yz", session.run(["y", "z"], feeds), strict=True):
                np.testing.assert_allclose(got[output], expected, rtol=1e-6)


def test_an_overload_is_called_by_its_name():
    calls, functions = [], []
    for overload, op_type, output in (("a", "Relu", "y"), ("b", "Neg", "z")):
        body, opsets = [helper.make_node(op_type, ["x"], ["y"])], [helper.make_opsetid("", 18)]
        functions.append(helper.make_function("local", "f", ["x"], ["y"], body, opsets, overload=overload))
        calls.append(helper.make_node("f", ["x"], [output], domain="local", overload=overload))
    values = [helper.make_tensor_value_info(name, onnx.TensorProto.FLOAT, [4]) for name in "xyz"]
    graph = helper.make_graph(calls, "g", values[:1], values[1:])
    opsets = [helper.make_opsetid("", 18), helper.make_opsetid("local", 1)]
    model = helper.make_model(graph, functions=functions, opset_imports=opsets, ir_version=10)
    expected = onnxruntime.InferenceSession(model.SerializeToString()).run(None, {"x": X})
    np.testing.assert_array_equal([*mlhood.compile(model).run(x=X).values()], expected)
