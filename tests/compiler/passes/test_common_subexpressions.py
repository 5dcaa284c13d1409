"""Common subexpression elimination."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization
from mlhood.compiler.operators.arithmetic import Add, Mul, Sub
from mlhood.compiler.operators.elementwise import Clip, LeakyRelu
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.quantized import Dequantize
from mlhood.compiler.passes import PASSES
from tests.compiler.passes.building import Sigmoid, Tanh, apply, built, example, kinds

PASS = "merge_common_subexpressions"


def pair(first, second=None):
    def make(b):
        x = b.x("n", 2, 2)
        return b(Add(), b(first, x), b(second or first, x))

    return make


def test_equal_nodes_are_merged():
    assert kinds(apply(pair(Tanh()), PASS)) == ["Tanh", "Add"]


def test_equal_chains_are_merged():
    def make(b):
        x = b.x("n", 2)
        return b(Add(), *(b(Tanh(), b(Sigmoid(), b(Mul(), x, np.float32(2)))) for _ in range(2)))

    graph = apply(make, PASS)
    assert kinds(graph) == ["Mul", "Sigmoid", "Tanh", "Add"]
    assert len(graph.constants) == 1


def test_equal_outputs_keep_their_names():
    graph = apply(lambda b: tuple(b(Tanh(), x) for x in [b.x("n", 2)] * 2), PASS)
    assert graph.outputs["y"] is graph.outputs["y1"]


def test_nodes_with_several_outputs():
    def make(b):
        x, pool = b.x("n", 1, 4, 4), MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
        return b(Add(), *(b.graph.add(pool, x).outputs[1] for _ in range(2)))

    assert kinds(apply(make, PASS)) == ["MaxPool", "Add"]


@pytest.mark.parametrize(
    ("first", "second"),
    [
        (LeakyRelu(0.1), LeakyRelu(0.2)),
        (Clip(0.0, 1.0), Clip(0.0, None)),
        (Clip(0.0, None), Clip(-0.0, None)),
        (Tanh(), Sigmoid()),
    ],
)
def test_different_nodes_stay(first, second):
    assert len(kinds(apply(pair(first, second), PASS))) == 3


def test_the_order_of_inputs_matters():
    def make(b):
        x, z = b.x(2), b.x(2, name="z")
        return b(Sub(), x, z), b(Sub(), z, x)

    assert kinds(apply(make, PASS)) == ["Sub", "Sub"]


def test_equal_constants_are_merged():
    arrays = [np.full(100, 1, np.float32), np.full(100, 1, np.float32), np.full(100, 1, np.float64)]
    arrays += [np.full((10, 10), 1, np.float32), np.full(100, -0.0, np.float32), np.zeros(100, np.float32)]
    same_sample = np.full(100, 1, np.float32)
    same_sample[51] = 2  # not among the elements sampled first
    graph = apply(lambda b: tuple(map(b.constant, [*arrays, same_sample])), PASS)
    assert len(graph.constants) == 6
    assert graph.outputs["y"] is graph.outputs["y1"]


def test_constants_with_different_quantisation_stay():
    def make(b):
        data = np.arange(3, dtype=np.int8)
        return tuple(b(Dequantize(), b.graph.constant("q", data, Quantization((s,), (0,)))) for s in (0.5, 0.25, 0.5))

    graph = apply(make, PASS)
    assert len(graph.constants) == 2
    assert graph.outputs["y"] is graph.outputs["y2"]


def test_unused_constants_are_ignored():
    graph = built(lambda b: (b(Tanh(), b.x(2)), b.constant(np.ones(1)), b.constant(np.ones(1)))[0])
    assert not PASSES[PASS](graph)


def make(b):
    x = b.x("n", 2)
    left = b(Mul(), x, b.constant(np.array([1, 2], np.float32), "c1"), name="left")
    right = b(Mul(), x, b.constant(np.array([1, 2], np.float32), "c2"), name="right")
    return b(Add(), left, right, name="sum"), right


test_golden = example(PASS, make)
