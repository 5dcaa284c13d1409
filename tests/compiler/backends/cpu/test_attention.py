"""Attention on the CPU: one operator with a kernel, whatever exporters write; beside the interpreter."""

import numpy as np
import pytest

from mlhood.compiler.backends.cpu.lowering import lower_for_cpu
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import prepare
from mlhood.compiler.hir import Graph, TensorType, Value, verify
from mlhood.compiler.operators.arithmetic import Add, Mul
from mlhood.compiler.operators.attention import Attention
from mlhood.compiler.operators.matrix import MatMul
from mlhood.compiler.operators.movement import Expand, Transpose
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.shape import Reshape, Unsqueeze
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


def attention(operator, mask=None, *, is_input=False, batch="n", queries=QUERIES, depth=DEPTH, width=5):
    """Return a graph of one Attention of two heads, and inputs for it."""
    graph, draw = Graph("attention"), np.random.default_rng(0)
    shapes = {"q": (batch, 2, queries, depth), "k": (batch, 2, KEYS, depth), "v": (batch, 2, KEYS, width)}
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
    """Check the CPU's result beside the interpreter's, and return the lowered graph."""
    lowered = lower_for_cpu(graph)
    verify(lowered)
    expected = Interpreter(graph).run(inputs)["y"]
    actual = prepare(lowered, "cpu").run(inputs)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)
    return lowered


def test_transposes_of_the_keys_are_merged():
    graph, inputs = attention(Attention(0.3))
    node = graph.nodes["attention"]
    k = graph.placeholder("heads", TensorType("float32", ("n", KEYS, 2, DEPTH)))
    graph.replace_input(node, 1, graph.add(Transpose((0, 2, 1, 3)), k).outputs[0])
    inputs["heads"] = inputs["k"].transpose(0, 2, 1, 3).copy()
    assert kinds(check(graph, inputs)).count("Transpose") == 1


def test_causal_attention_of_a_dynamic_number_of_queries_has_a_kernel():
    graph, inputs = attention(Attention(0.3, True), queries="t")
    assert kinds(check(graph, inputs)) == ["Attention"]


def test_a_causal_mask_is_recognised():
    graph, inputs = attention(Attention(0.3), np.triu(np.full((QUERIES, KEYS), -INF), 1))
    (node,) = check(graph, inputs).topological()
    assert node.operator.attributes["causal"]


def test_half_precision_stays():
    graph = Graph()
    values = [graph.placeholder(name, TensorType("float16", (2, 3, 4))) for name in "qkv"]
    graph.output(graph.add(Attention(0.5), *values).outputs[0])
    assert kinds(lower_for_cpu(graph)) == ["Attention"]


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("is_input", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize(("depth", "width"), [(8, 5), (32, 64)])  # without and with a kernel for few queries
def test_attention_has_a_kernel(mask, is_input, causal, depth, width):
    graph, inputs = attention(Attention(0.3, causal), MASKS[mask], is_input=is_input, depth=depth, width=width)
    lowered = check(graph, inputs)
    assert kinds(lowered) == ["Attention"]
    assert prepare(lowered, "cpu").kernels(inputs)["attention"][0] == "attention"


def decoder_step(scale, *, mask=None, queries=1, past="past", reshaped=True):
    """Return what torch exports for a step with a cache of keys, and inputs for it."""
    graph, draw = Graph("decoder"), np.random.default_rng(0)
    shapes = {"q": (1, 2, queries, 32), "k": (1, 2, past, 32), "v": (1, 2, past, 32)}
    q, k, v = (graph.placeholder(name, TensorType("float32", shape)) for name, shape in shapes.items())
    inputs = {name: draw.standard_normal((1, 2, queries if name == "q" else 21, 32), np.float32) for name in "qkv"}

    def add(operator, *values):
        return graph.add(operator, *values).outputs[0]

    factor = graph.constant("factor", np.array(scale, np.float32))
    if reshaped:
        moved = add(Transpose((0, 2, 1)), add(Reshape((2, -1, 32)), k))
        moved = add(Reshape((1, 2, 32, -1)), moved)
    else:
        moved = add(Transpose((0, 1, 3, 2)), k)
    scores = add(MatMul(), add(Mul(), q, factor), add(Mul(), factor, moved))
    if mask is not None:
        scores = add(Add(), graph.constant("mask", mask.astype(np.float32)), scores)
    graph.output(add(MatMul(), add(Softmax((-1,)), scores), v), "y")
    return graph, inputs


@pytest.mark.parametrize("reshaped", [False, True])
@pytest.mark.parametrize("mask", [None, np.zeros((1, 21)), np.where(np.arange(21) % 3, 0.5, -INF)], ids=str)
def test_a_step_of_a_decoder_is_attention(mask, reshaped):
    past = "past" if mask is None else 21
    graph, inputs = decoder_step(0.4, mask=mask, past=past, reshaped=reshaped)
    lowered = check(graph, inputs)
    (node,) = lowered.topological()
    assert node.operator.name == "Attention"
    assert node.operator.scale == pytest.approx(0.16)


def test_products_with_a_query_that_sees_nothing_stay():
    graph, inputs = decoder_step(0.4, mask=np.full((1, 21), -INF), past=21)
    lowered = lower_for_cpu(graph)
    assert kinds(lowered).count("MatMul") == 2
    expected, actual = Interpreter(graph).run(inputs)["y"], prepare(lowered, "cpu").run(inputs)["y"]
    np.testing.assert_allclose(actual, expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("queries", "mask"),
    [(1, (1, KEYS)), (2, None), (9, (9, KEYS)), (2, (3, 1, 1, KEYS)), (2, (3, 4, 2, KEYS))],
    ids=str,
)
def test_heads_that_share_keys_read_them_once(queries, mask):
    graph, draw = Graph("shared"), np.random.default_rng(0)
    q = graph.placeholder("q", TensorType("float32", ("n", 4, queries, 32)))
    inputs = {"q": draw.standard_normal((3, 4, queries, 32), np.float32)}
    values: list[Value] = [q]
    for name in "kv":
        x = graph.placeholder(name, TensorType("float32", ("n", 2, KEYS, 32)))
        inputs[name] = draw.standard_normal((3, 2, KEYS, 32), np.float32)
        for operator in (Unsqueeze((2,)), Expand((1, 1, 2, 1, 1)), Reshape((0, 4, -1, 32))):
            x = graph.add(operator, x).outputs[0]
        values.append(x)
    if mask is not None:
        values.append(graph.constant("mask", draw.standard_normal(mask).astype(np.float32)))
    graph.output(graph.add(Attention(0.3), *values, name="attention").outputs[0], "y")
    by_head = mask is not None and mask[1:2] == (4,)
    assert ("Expand" in kinds(check(graph, inputs))) == by_head
