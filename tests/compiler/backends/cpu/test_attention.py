"""Attention on the CPU: expanded into what has kernels, and right beside ONNX Runtime."""

import numpy as np
import pytest

from mlhood.compiler.backends.cpu.lowering import lower_for_cpu
from mlhood.compiler.backends.targets import prepare
from mlhood.compiler.hir import Graph, TensorType, verify
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.movement import Transpose
from tests.compiler.passes.building import kinds

INF = np.inf
QUERIES, KEYS, DEPTH = 4, 6, 8
MASKS = {
    "none": None,
    "finite": np.linspace(-3, 3, QUERIES * KEYS).reshape(QUERIES, KEYS),
    "some hidden": np.where(np.arange(QUERIES * KEYS).reshape(QUERIES, KEYS) % 3, 0, -INF),
    "a query sees nothing": np.where(np.arange(QUERIES)[:, None] == 2, -INF, np.zeros((QUERIES, KEYS))),
    "broadcast": np.array([[0, 0, -INF, 0, -INF, 1]]),
}


def attention(operator, mask=None, *, is_input=False, batch="n", queries=QUERIES):
    """Return a graph of one Attention of two heads, and inputs for it."""
    graph, draw = Graph("attention"), np.random.default_rng(0)
    shapes = {"q": (batch, 2, queries, DEPTH), "k": (batch, 2, KEYS, DEPTH), "v": (batch, 2, KEYS, 5)}
    inputs = {
        name: draw.standard_normal((3, 2, QUERIES if name == "q" else KEYS, s[-1]), np.float32)
        for name, s in shapes.items()
    }
    values = [graph.placeholder(name, TensorType("float32", shape)) for name, shape in shapes.items()]
    if mask is not None:
        mask = mask.astype(np.float32)
        if is_input:
            inputs["mask"] = mask
            values.append(graph.placeholder("mask", TensorType("float32", mask.shape)))
        else:
            values.append(graph.constant("mask", mask))
    graph.output(graph.add(operator, *values, name="attention").outputs[0], "y")
    return graph, inputs


def check(graph, inputs):
    """Check the CPU's result beside ONNX Runtime's, and return the lowered graph."""
    lowered = lower_for_cpu(graph)
    verify(lowered)
    expected = onnxruntime_run(graph, inputs)
    actual = prepare(lowered, "cpu").run(inputs)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    return lowered


def onnxruntime_run(graph, inputs):
    import onnxruntime

    session = onnxruntime.InferenceSession(to_onnx(graph).SerializeToString(), providers=["CPUExecutionProvider"])
    return session.run(None, inputs)[0]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("mask", MASKS)
def test_attention_is_expanded(mask, is_input, causal):
    graph, inputs = attention(Attention(0.3, causal), MASKS[mask], is_input=is_input)
    lowered = check(graph, inputs)
    assert "Attention" not in kinds(lowered)
    assert kinds(lowered).count("MatMul") == 2


def test_a_mask_that_hides_nothing_whole_costs_no_product():
    graph, inputs = attention(Attention(0.3), MASKS["some hidden"])
    assert not {"Greater", "Cast"} & set(kinds(check(graph, inputs)))
    graph, inputs = attention(Attention(0.3), MASKS["a query sees nothing"])
    assert {"Greater", "Cast"} <= set(kinds(check(graph, inputs)))


def test_causal_attention_of_a_dynamic_number_of_queries_stays():
    graph, inputs = attention(Attention(0.3, True), queries="t")
    assert kinds(check(graph, inputs)) == ["Attention"]


def test_transposes_of_the_keys_are_merged():
    graph, inputs = attention(Attention(0.3))
    node = graph.nodes["attention"]
    k = graph.placeholder("heads", TensorType("float32", ("n", KEYS, 2, DEPTH)))
    graph.replace_input(node, 1, graph.add(Transpose((0, 2, 1, 3)), k).outputs[0])
    inputs["heads"] = inputs["k"].transpose(0, 2, 1, 3).copy()
    assert kinds(check(graph, inputs)).count("Transpose") == 1


def test_half_precision_stays():
    graph = Graph()
    values = [graph.placeholder(name, TensorType("float16", (2, 3, 4))) for name in "qkv"]
    graph.output(graph.add(Attention(0.5), *values).outputs[0])
    assert kinds(lower_for_cpu(graph)) == ["Attention"]
