"""Evaluation of constant subgraphs at compile time."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization, verify
from mlhood.compiler.hir.lengths import OPEN_END
from mlhood.compiler.operators.arithmetic import Add, Div, Mul
from mlhood.compiler.operators.creation import Shape
from mlhood.compiler.operators.movement import Concat, Expand, Gather, Slice, Tile, Transpose
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.shape import Reshape
from mlhood.compiler.passes import PASSES
from mlhood.compiler.passes.constant_folding import MAX_ADDED_BYTES, MAX_RESULT_BYTES
from tests.compiler.passes.building import Tanh, apply, built, example, kinds

PASS = "fold_constants"
Q = Quantization((0.5,), (1,))


def test_a_chain_of_constants_becomes_one_and_keeps_its_name():
    def make(b):
        c = b(Transpose((1, 0)), b(Mul(), b.numbers(2, 3), b.numbers(1, 3)), name="transposed")
        return b(Add(), b.x("n", 3, 2), c)

    graph = apply(make, PASS)
    assert kinds(graph) == ["Add"]
    assert list(graph.constants) == ["transposed"]


def test_an_output_may_become_a_constant():
    graph = apply(lambda b: b(Tanh(), b.numbers(3), name="known"), PASS)
    assert kinds(graph) == []
    assert graph.outputs["y"] is graph.constants["known"]


def test_several_outputs():
    def make(b):
        pool = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
        return b.graph.add(pool, b.constant(b.numbers(1, 1, 4, 4))).outputs

    graph = apply(make, PASS)
    assert kinds(graph) == []
    assert graph.outputs["y1"].type.element == "int64"


def test_quantised_constants_keep_their_parameters():
    graph = apply(lambda b: b(Dequantize(), b(Quantize("int8", Q), b.numbers(4), name="q")), PASS)
    assert kinds(graph) == ["Dequantize"]
    assert graph.constants["q"].type.quantization == Q


@pytest.mark.parametrize("operator", [Shape(), Shape(2), Shape(1, -1)])
def test_a_static_shape_is_folded(operator):
    graph = apply(lambda b: b(operator, b.x(2, 3, 4, 5)), PASS)
    assert kinds(graph) == []


def test_static_sizes_next_to_a_dynamic_axis_are_folded():
    assert kinds(apply(lambda b: b(Shape(1), b.x("n", 3, 4)), PASS)) == []
    last = Slice((-1,), (OPEN_END,), (0,), (1,))
    assert kinds(apply(lambda b: b(last, b(Shape(), b.x("n", 3, 4))), PASS)) == ["Shape"]  # which is dead


STAYS = {
    "a dynamic axis": lambda b: b(Shape(), b.x("n", 3)),
    "a placeholder": lambda b: b(Add(), b.x(3), np.ones(3, np.float32)),
    "fails at run time": lambda b: b(Gather(0), np.ones(3, np.float32), np.array([7])),
    "too large a result": lambda b: b(Expand((MAX_RESULT_BYTES, 2)), np.ones(1, np.float32)),
}


@pytest.mark.parametrize("make", [pytest.param(make, id=name) for name, make in STAYS.items()])
def test_stays(make):
    graph = built(make)
    assert not PASSES[PASS](graph)
    assert len(graph.nodes) == 1


def test_the_added_bytes_are_bounded():
    def make(b):
        row = b.constant(np.ones(MAX_RESULT_BYTES // 4, np.float32))
        return tuple(b(Mul(), row, np.float32(i)) for i in range(2 * MAX_ADDED_BYTES // MAX_RESULT_BYTES))

    graph = built(make)
    PASSES[PASS](graph)
    verify(graph)
    assert len(graph.nodes) == MAX_ADDED_BYTES // MAX_RESULT_BYTES


def test_a_long_chain_of_large_constants_is_folded():
    def make(b):
        c = b.constant(np.ones(MAX_RESULT_BYTES // 2, np.float32))
        for _ in range(2 * MAX_ADDED_BYTES // MAX_RESULT_BYTES):
            c = b(Mul(), c, np.float32(1.5))
        return c

    graph = built(make)
    PASSES[PASS](graph)
    assert kinds(graph) == []
    assert len(graph.constants) == 1


def test_large_constants_are_transposed():
    graph = built(lambda b: b(Transpose((1, 0)), b(Tile((1, 1)), np.zeros((MAX_RESULT_BYTES, 1), np.float32))))
    PASSES[PASS](graph)
    assert kinds(graph) == []


def test_division_by_zero_is_not_an_error():
    graph = apply(lambda b: b(Div(), np.ones(2, np.float32), np.zeros(2, np.float32)), PASS)
    assert np.isinf(graph.outputs["y"].data).all()


def make(b):
    shape = b(Concat(0), b(Shape(1), b.x("n", 2, 2)), b.constant(np.array([3]), "more"), name="shape")
    c = b(Mul(), b.constant(np.array([1, 2], np.float32), "a"), b.constant(np.float32(0.5), "b"), name="half")
    return b(Add(), b(Reshape((-1, 2)), b.graph.value("x"), name="rows"), c, name="add"), shape


test_golden = example(PASS, make)
