"""Operators that ONNX defines by others, and branches of an If, against ONNX Runtime or ONNX's reference."""

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

from mlhood import compile as compile_model
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import session_of

FLOAT, BOOL = TensorProto.FLOAT, TensorProto.BOOL
node = helper.make_node
X = np.random.default_rng(0).standard_normal((2, 4, 3, 3)).astype(np.float32)


def value(name, element, shape):
    return helper.make_tensor_value_info(name, element, shape)


def model_of(nodes, inputs, rank, *, opset=20, constants=None):
    tensors = [numpy_helper.from_array(np.asarray(array), name) for name, array in (constants or {}).items()]
    graph = helper.make_graph(nodes, "test", inputs, [value("y", FLOAT, [None] * rank)], tensors)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=10)


def branch(name, nodes, output, constants=None):
    tensors = [numpy_helper.from_array(np.asarray(array), key) for key, array in (constants or {}).items()]
    return helper.make_graph(nodes, name, [], [value(output, FLOAT, None)], tensors)


def squeeze_model(shape):
    """Return what torch writes for x.squeeze(1): an If on the length of the axis."""
    nodes = [
        node("Shape", ["x"], ["shape"]),
        node("Gather", ["shape", "one"], ["length"]),
        node("Equal", ["length", "one"], ["is_one"]),
        node(
            "If",
            ["is_one"],
            ["s"],
            then_branch=branch("a", [node("Squeeze", ["x", "one"], ["t"])], "t"),
            else_branch=branch("b", [node("Identity", ["x"], ["t"])], "t"),
        ),
        node("Relu", ["s"], ["y"]),
    ]
    rank = 3 if shape[1] == 1 else 4
    return model_of(nodes, [value("x", FLOAT, shape)], rank, constants={"one": np.array([1], np.int64)})


@pytest.mark.parametrize("shape", [["N", 1, 3, 3], ["N", 4, 3, 3]])
def test_the_branch_that_is_taken_is_imported(shape):
    model = squeeze_model(shape)
    x = np.ascontiguousarray(X[:, : shape[1]])
    expected = ReferenceEvaluator(model).run(None, {"x": x})[0]  # ONNX Runtime checks the other branch as well
    np.testing.assert_array_equal(compile_model(model).run(x=x)["y"], expected)


def test_branches_read_values_around_them_and_have_constants_of_their_own():
    """Both define `k`, and one holds an If itself."""
    inner = node(
        "If",
        ["yes"],
        ["d"],
        then_branch=branch("c", [node("Mul", ["x", "k"], ["e"])], "e"),
        else_branch=branch("d", [node("Det", ["x"], ["e"])], "e"),
    )
    branches = {
        "then_branch": branch("a", [inner, node("Add", ["d", "r"], ["o"])], "o", {"k": np.float32([3])}),
        "else_branch": branch("b", [node("Add", ["x", "k"], ["o"])], "o", {"k": np.float32([5])}),
    }
    nodes = [node("Relu", ["x"], ["r"]), node("If", ["c"], ["y"], **branches)]
    inputs = [value("x", FLOAT, ["N", 3]), value("c", BOOL, [])]
    model = model_of(nodes, inputs, 2, constants={"yes": np.array(True)})
    x = X[0, 0]
    session = session_of(model)
    for target in ("interpreter", "cpu"):
        executable = compile_model(model, target)
        for condition in (np.array(True), np.array(False)):
            expected = session.run(None, {"x": x, "c": condition})[0]
            np.testing.assert_allclose(executable.run(x=x, c=condition)["y"], expected, rtol=1e-6)


def test_a_condition_that_depends_on_data_needs_branches_of_one_type():
    branches = {
        "then_branch": branch("a", [node("Squeeze", ["x"], ["o"])], "o"),
        "else_branch": branch("b", [node("Identity", ["x"], ["o"])], "o"),
    }
    nodes = [node("IsNaN", ["x"], ["bits"]), node("If", ["bits"], ["y"], **branches)]
    with pytest.raises(CompilerError, match="computed at run time"):
        import_model(model_of(nodes, [value("x", FLOAT, [1, 1])], 2))
    inputs = [value("x", FLOAT, [1, 3]), value("c", BOOL, [])]
    with pytest.raises(
        CompilerError, match="must be known at compile time"
    ):  # an input that can be given as a constant
        import_model(model_of([node("If", ["c"], ["y"], **branches)], inputs, 2))


def test_an_unknown_operator_in_a_branch_is_listed():
    branches = {
        "then_branch": branch("a", [node("RandomNormalLike", ["x"], ["o"], "lost")], "o"),
        "else_branch": branch("b", [node("Identity", ["x"], ["o"])], "o"),
    }
    model = model_of([node("If", ["c"], ["y"], **branches)], [value("x", FLOAT, [1, 3, 3]), value("c", BOOL, [])], 3)
    with pytest.raises(CompilerError, match="RandomNormalLike \\('lost'\\)"):
        import_model(model)


def test_a_function_of_the_model_may_hold_an_if():
    body = [
        node("Constant", [], ["yes"], value=helper.make_tensor("t", BOOL, [], [True])),
        node(
            "If",
            ["yes"],
            ["b"],
            then_branch=branch("a", [node("Relu", ["a"], ["o"])], "o"),
            else_branch=branch("b", [node("Neg", ["a"], ["o"])], "o"),
        ),
    ]
    opsets = [helper.make_opsetid("", 20)]
    function = helper.make_function("own", "Choose", ["a"], ["b"], body, opsets)
    model = model_of([node("Choose", ["x"], ["y"], domain="own")], [value("x", FLOAT, ["N", 3])], 2)
    model.functions.append(function)
    model.opset_import.append(helper.make_opsetid("own", 1))
    expected = session_of(model).run(None, {"x": X[0, 0]})[0]
    np.testing.assert_array_equal(compile_model(model).run(x=X[0, 0])["y"], expected)


def graph_of(name, op_type, inputs, constants):
    """Return a graph of one node that modifies a tensor of 4 axes."""
    tensors = [numpy_helper.from_array(np.asarray(array, np.float32), key) for key, array in constants.items()]
    ends = [value(end, FLOAT, list("BHLS")) for end in ("x", "y")]
    return helper.make_graph([node(op_type, inputs, ["y"])], name, ends[:1], ends[1:], tensors)


@pytest.mark.parametrize("nodes", [1, 2])
@pytest.mark.parametrize("modified", [(), ("score_mod",), ("score_mod", "prob_mod")])
def test_flex_attention_with_graphs_in_its_attributes(nodes, modified):
    graphs = {
        "score_mod": graph_of("score", "Add", ["x", "c"], {"c": 0.5}),
        "prob_mod": graph_of("prob", "Mul", ["x", "c"], {"c": 0.25}),
    }
    attributes = {name: graphs[name] for name in modified}
    shapes = {"q": (2, 4, 3, 8), "k": (2, 2, 5, 8), "v": (2, 2, 5, 8)}
    calls = [
        node("FlexAttention", [query, "k", "v"], [result], domain="ai.onnx.preview", **attributes)
        for query, result in [("q", "h"), ("h", "y")][2 - nodes :]
    ]
    calls[0].input[0] = "q"
    inputs = [value(name, FLOAT, shape) for name, shape in shapes.items()]
    graph = helper.make_graph(calls, "test", inputs, [value("y", FLOAT, [None] * 4)])
    opsets = [helper.make_opsetid("", 26), helper.make_opsetid("ai.onnx.preview", 1)]
    model = helper.make_model(graph, opset_imports=opsets, ir_version=10)
    rng = np.random.default_rng(0)
    feeds = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in shapes.items()}
    expected = ReferenceEvaluator(model).run(None, feeds)[0]
    for target in ("interpreter", "cpu"):
        np.testing.assert_allclose(compile_model(model, target).run(**feeds)["y"], expected, rtol=1e-4, atol=1e-5)
