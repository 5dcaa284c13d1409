"""Models as tools write them: what is repaired gives the results of the model that a tool should have written."""

import random

import numpy as np
import onnx
import onnxruntime
import pytest
from onnx import TensorProto, helper, numpy_helper

import mlhood
from mlhood.errors import ExchangeError
from mlhood.exchange import load

node = helper.make_node
X = np.linspace(-1, 1, 3, dtype=np.float32)


def model_of(nodes, opsets=(("", 20),), functions=(), inputs=()):
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "xy"]
    graph = helper.make_graph(nodes, "g", [*values[:1], *inputs], values[1:])
    imports = [helper.make_opsetid(*entry) for entry in opsets]
    return helper.make_model(graph, opset_imports=imports, ir_version=10, functions=list(functions))


def onnx_runtime(model, **feeds):
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    return onnxruntime.InferenceSession(model.SerializeToString(), options).run(None, feeds)[0]


def random_nodes(draw_from):
    """Return nodes in order: a constant, and operators on any earlier values."""
    values, nodes = ["x", "k"], [node("Constant", [], ["k"], value=numpy_helper.from_array(np.float32([1, 2, 3])))]
    for i in range(8):
        reads = draw_from.choices(values, k=draw_from.choice([1, 2]))
        nodes.append(node("Neg" if len(reads) == 1 else "Add", reads, [f"v{i}"]))
        values.append(f"v{i}")
    return [*nodes, node("Sum", values, ["y"])]


@pytest.mark.parametrize("seed", range(12))
def test_nodes_in_any_order_compute_the_same(seed):
    draw_from = random.Random(seed)
    nodes = random_nodes(draw_from)
    shuffled = model_of(draw_from.sample(nodes, len(nodes)))
    before, expected = shuffled.SerializeToString(), mlhood.compile(model_of(nodes)).run(x=X)["y"]
    np.testing.assert_array_equal(mlhood.compile(shuffled).run(x=X)["y"], expected)
    assert shuffled.SerializeToString() == before
    repaired = load(shuffled)
    onnx.checker.check_model(repaired, full_check=True)
    assert load(repaired) is repaired


def branch(name, nodes, output):
    return helper.make_graph(nodes, name, [], [helper.make_tensor_value_info(output, TensorProto.FLOAT, [3])])


def choice(condition, results):
    """An If whose branches read `late`, the first one in a branch of its own and out of order."""
    inner = {
        "then_branch": branch("c", [node("Neg", ["u"], ["p"]), node("Exp", ["late"], ["u"])], "p"),
        "else_branch": branch("d", [node("Abs", ["late"], ["q"])], "q"),
    }
    branches = {
        "then_branch": branch("a", [node("Add", ["s", "x"], ["t"]), node("If", [condition], ["s"], **inner)], "t"),
        "else_branch": branch("b", [node("Identity", ["late"], ["e"])], "e"),
    }
    return node("If", [condition], results, **branches)


@pytest.mark.parametrize("condition", [True, False])
def test_branches_count_as_readers_and_are_sorted(condition):
    nodes = [choice("c", ["y"]), node("Relu", ["x"], ["late"])]
    model = model_of(nodes, inputs=[helper.make_tensor_value_info("c", TensorProto.BOOL, [])])
    late = np.maximum(X, 0)
    expected = -np.exp(late) + X if condition else late
    for target in ("interpreter", "cpu"):
        got = mlhood.compile(model, target).run(x=X, c=np.array(condition))["y"]
        np.testing.assert_allclose(got, expected, rtol=1e-6)
    onnx.checker.check_model(load(model), full_check=True)


def test_a_float16_model_with_its_casts_at_the_end():
    cast = {name: TensorProto.DataType.Value(name) for name in ("FLOAT", "FLOAT16")}
    nodes = [
        node("Abs", ["h"], ["e"]),
        node("Cast", ["x"], ["h"], to=cast["FLOAT16"]),
        node("Cast", ["e"], ["y"], to=cast["FLOAT"]),
    ]
    model = model_of(nodes)
    np.testing.assert_array_equal(mlhood.compile(model).run(x=X)["y"], onnx_runtime(model, x=X))
    assert [node.op_type for node in load(model).graph.node] == ["Cast", "Abs", "Cast"]


def test_nodes_move_only_as_far_as_they_must():
    nodes = [
        node("Neg", ["x"], ["a"]),
        node("Add", ["c", "a"], ["y"]),
        node("Abs", ["x"], ["b"]),
        node("Exp", ["b"], ["c"]),
    ]
    assert [each.op_type for each in load(model_of(nodes)).graph.node] == ["Neg", "Abs", "Exp", "Add"]


@pytest.mark.parametrize("order", [(0, 1, 2, 3), (3, 1, 0, 2)])
def test_a_cycle_is_named(order):
    nodes = [
        node("Add", ["x", "c"], ["a"], "first"),
        node("Neg", ["a"], ["b"]),
        node("Abs", ["b"], ["c"], "third"),
        node("Exp", ["c"], ["y"], "after"),
    ]
    with pytest.raises(ExchangeError, match="in a cycle") as caught:
        load(model_of([nodes[i] for i in order]))
    got = caught.value.parts["got"]
    assert all(name in got for name in ("'first'", "'b'", "'third'"))
    assert "'after'" not in got


def test_a_cycle_through_a_branch():
    nodes = [choice("c", ["y"]), node("Relu", ["y"], ["late"])]
    with pytest.raises(ExchangeError, match="in a cycle"):
        load(model_of(nodes, inputs=[helper.make_tensor_value_info("c", TensorProto.BOOL, [])]))


FUNCTION = helper.make_function("own", "F", ["a"], ["b"], [node("Relu", ["a"], ["b"])], [helper.make_opsetid("", 20)])


@pytest.mark.parametrize(
    ("domain", "op_type", "opsets"),
    [
        ("", "Relu", [("com.microsoft", 1)]),
        ("ai.onnx", "Relu", [("", 20)]),
        ("ai.onnx", "Relu", [("ai.onnx", 20)]),
        ("ai.onnx", "Relu", [("com.microsoft", 1)]),
        ("own", "F", [("", 20)]),
    ],
)
def test_a_domain_without_an_import(domain, op_type, opsets):
    model = model_of([node(op_type, ["x"], ["y"], domain=domain)], opsets, [FUNCTION] * (domain == "own"))
    np.testing.assert_array_equal(mlhood.compile(model).run(x=X)["y"], np.maximum(X, 0))


def test_a_missing_import_is_the_newest_version():
    scaler = node("Scaler", ["x"], ["y"], domain="ai.onnx.ml", offset=[0.5], scale=[2.0])
    model = model_of([scaler])
    versions = {entry.domain: entry.version for entry in load(model, types=False).opset_import}
    assert versions == {
        "": 20,
        "ai.onnx.ml": max(s.since_version for s in onnx.defs.get_all_schemas() if s.domain == "ai.onnx.ml"),
    }
    np.testing.assert_array_equal(mlhood.exchange.run(model, x=X)["y"], onnx_runtime(model, x=X))


def test_operators_that_onnx_runtime_alone_knows_in_an_old_opset():
    weights = [numpy_helper.from_array(np.float32([1, 2, 3]), name) for name in ("scale", "bias")]
    nodes = [
        node("LayerNormalization", ["x", "scale", "bias"], ["n"]),
        node("ThresholdedRelu", ["n"], ["t"], alpha=0.5),
        node("LayerNormalization", ["t", "scale"], ["y"]),
    ]
    model = model_of(nodes, [("", 9)])
    model.graph.initializer.extend(weights)
    expected = onnx_runtime(model, x=X)
    np.testing.assert_allclose(mlhood.compile(model).run(x=X)["y"], expected, rtol=1e-5, atol=1e-6)
    np.testing.assert_array_equal(mlhood.exchange.run(model, x=X)["y"], expected)
    assert load(model) is model


def test_what_the_checker_alone_requires():
    """A graph without a name; before IR version 4, initialisers that are inputs, also with a type."""
    model = model_of([node("Add", ["x", "w"], ["y"])])
    model.ir_version, model.graph.name = 3, ""
    model.graph.initializer.append(numpy_helper.from_array(np.float32([1, 2, 3]), "w"))
    for _ in range(2):
        assert load(model) is model
        np.testing.assert_array_equal(mlhood.compile(model).run(x=X)["y"], onnx_runtime(model, x=X))
        model.graph.input.add(name="w")
