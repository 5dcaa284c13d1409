"""Attention against torch, on the targets, and imported."""

import numpy as np
import onnx
import pytest
import torch

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.attention import Attention
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import assert_agreement

SHAPES = {
    "heads": ((2, 3, 5, 4), (2, 3, 5, 4), (2, 3, 5, 6), None),
    "other keys": ((2, 5, 4), (2, 7, 4), (2, 7, 4), (5, 7)),
    "mask over heads": ((2, 3, 5, 4), (2, 3, 7, 4), (2, 3, 7, 4), (2, 1, 1, 7)),
    "one query": ((1, 2, 1, 4), (1, 2, 9, 4), (1, 2, 9, 4), (1, 1, 1, 9)),
    "shared keys": ((2, 3, 5, 4), (1, 1, 6, 4), (6, 2), (2, 3, 5, 6)),
    "no keys": ((2, 5, 4), (2, 0, 4), (2, 0, 3), None),
}


def arrays_of(shapes, seed=0):
    rng = np.random.default_rng(seed)
    return [rng.standard_normal(shape, np.float32) for shape in shapes if shape is not None]


def graph_of(operator, arrays, shapes=None):
    graph = Graph("attention")
    shapes = shapes or [array.shape for array in arrays]
    inputs = [
        graph.placeholder(name, TensorType(array.dtype.name, shape))
        for name, array, shape in zip("qkvm", arrays, shapes, strict=False)
    ]
    graph.output(graph.add(operator, *inputs).outputs[0], "y")
    verify(graph)
    return graph


def feeds(arrays):
    return dict(zip("qkvm", arrays, strict=False))


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("shapes", SHAPES.values(), ids=SHAPES)
def test_attention_is_as_in_torch(shapes, causal):
    arrays = arrays_of(shapes)
    q, k, v, *mask = map(torch.from_numpy, arrays)
    future = torch.full((q.shape[-2], k.shape[-2]), -torch.inf).triu(1) if causal else torch.zeros(())
    bias = (torch.zeros(()) if not mask else mask[0]).add(future).expand(*q.shape[:-1], k.shape[-2])
    wanted = torch.nn.functional.scaled_dot_product_attention(q, k, v, bias, scale=0.3)
    graph = graph_of(Attention(0.3, causal), arrays)
    assert graph.outputs["y"].type.shape == wanted.shape
    for runner in (Interpreter(graph), Xla(graph)):
        np.testing.assert_allclose(runner.run(feeds(arrays))["y"], wanted, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("causal", [False, True])
def test_a_query_that_attends_to_nothing_is_zero(causal):
    arrays = arrays_of(SHAPES["other keys"])
    arrays[3][1] = -np.inf
    graph = graph_of(Attention(0.5, causal), arrays, [("b", "l", 4), ("b", "s", 4), ("b", "s", 4), ("l", "s")])
    got = Interpreter(graph).run(feeds(arrays))["y"]
    assert not got[:, 1].any()
    np.testing.assert_allclose(Xla(graph).run(feeds(arrays))["y"], got, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("shapes", "what"),
    [
        (((2, 4), (3, 5), (3, 4)), "inner axes"),
        (((2, 4), (3, 4), (5, 4)), "inner axes"),
        (((2, 4), (1, 4), (3, 4), (2, 3)), "mask"),
        (((2, 4), (3, 4), (3, 4), (2, 2)), "broadcast"),
        (((2, 4), (3, 4), (3,)), "matrices"),
    ],
)
def test_shapes_that_do_not_match(shapes, what):
    with pytest.raises(CompilerError, match=what):
        graph_of(Attention(1.0), arrays_of(shapes))


def test_what_it_costs():
    operator = Attention(1.0)
    assert operator.macs([(2, 5, 4), (2, 7, 4), (2, 7, 3)], (2, 5, 3)) == 2 * 5 * 7 * (4 + 3)
    types = [TensorType("float32", shape) for shape in ((2, 5, 4), (2, 7, 4), (2, 7, 3))]
    assert operator.workspace(*types) == 2 * 5 * 7


@pytest.mark.parametrize("causal", [0, 1])
def test_packed_heads_with_open_axes(causal):
    text = (
        '<ir_version: 8, opset_import: ["": 23]> test '
        "(float[b, l, 24] q, float[b, s, 12] k, float[b, s, 12] v, float[l, s] m) => (float[b, l, 24] y) "
        f"{{ y = Attention<q_num_heads = 4, kv_num_heads = 2, is_causal = {causal}>(q, k, v, m) }}"
    )
    rng = np.random.default_rng(0)
    shapes = {"q": (2, 5, 24), "k": (2, 5, 12), "v": (2, 5, 12), "m": (5, 5)}
    inputs = {name: rng.standard_normal(shape, np.float32) for name, shape in shapes.items()}
    assert_agreement(onnx.parser.parse_model(text), inputs, export=False)


def test_softcap_is_imported_by_the_definition():
    text = (
        '<ir_version: 10, opset_import: ["": 23]> test (float[1, 2, 3, 4] q) => (float[1, 2, 3, 4] y) '
        "{ y = Attention<softcap = 2.0>(q, q, q) }"
    )
    assert_agreement(
        onnx.parser.parse_model(text), {"q": np.random.default_rng(0).standard_normal((1, 2, 3, 4), np.float32)}
    )


def test_what_is_refused():
    text = (
        '<ir_version: 10, opset_import: ["": 24]> test '
        "(float[1, 2, 3, 4] q, int64[1] lengths) => (float[1, 2, 3, 4] y) { y = Attention(q, q, q, , , , lengths) }"
    )
    with pytest.raises(CompilerError, match="lengths of keys"):
        import_model(onnx.parser.parse_model(text))
