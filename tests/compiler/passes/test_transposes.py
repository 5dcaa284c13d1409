"""Transposes that move down until they meet."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add, Greater, Mul, Pow, PRelu, Sub, Where
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.elementwise import Clip, LeakyRelu, Relu
from mlhood.compiler.operators.matrix import FullyConnected, MatMul
from mlhood.compiler.operators.movement import Concat, Slice, Transpose
from mlhood.compiler.operators.normalization import LogSoftmax, Softmax
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.compiler.passes import optimize
from tests.compiler.passes.building import (
    Abs,
    ReduceMax,
    ReduceMean,
    Sigmoid,
    Tanh,
    apply,
    before_and_after,
    built,
    check_same,
    kinds,
)

PASS = "sink_transposes"
LAST, FIRST = Transpose((0, 2, 3, 1)), Transpose((0, 3, 1, 2))  # to channels last, and back


def image(b, name="x"):
    return b.x("n", 2, 4, 3, name=name)


def turned(b, name="x"):
    return b(LAST, image(b, name))


CANCEL = {
    "two": lambda b: b(FIRST, turned(b)),
    "function": lambda b: b(FIRST, b(Sigmoid(), turned(b))),
    "relu": lambda b: b(FIRST, b(Relu(), turned(b))),
    "leaky relu": lambda b: b(FIRST, b(LeakyRelu(), turned(b))),
    "clip": lambda b: b(FIRST, b(Clip(0.0, 1.0), turned(b))),
    "cast": lambda b: b(FIRST, b(Cast("float64"), turned(b))),
    "sum of two": lambda b: b(FIRST, b(Add(), turned(b), turned(b, "z"))),
    "sum of one and itself": lambda b: b(FIRST, b(Add(), (y := turned(b)), y)),
    "sum with an activation": lambda b: b(FIRST, b(AddActivation(("Relu",)), turned(b), turned(b, "z"))),
    "number": lambda b: b(FIRST, b(Mul(), turned(b), np.float32(2))),
    "vector of channels": lambda b: b(FIRST, b(Sub(), turned(b), b.numbers(2))),
    "whole constant": lambda b: b(FIRST, b(Sub(), b.numbers(3, 4, 3, 2), turned(b))),
    "slope": lambda b: b(FIRST, b(PRelu(), turned(b), b.numbers(2))),
    "power": lambda b: b(FIRST, b(Pow(), b(Abs(), turned(b)), b.numbers(3, 1))),
    "comparison": lambda b: b(FIRST, b(Greater(), turned(b), b.numbers(4, 1, 1))),
    "choice": lambda b: b(
        FIRST, b(Where(), b(Greater(), turned(b), np.float32(0)), turned(b, "z"), b.numbers(1, 1, 3, 2))
    ),
    "concat": lambda b: b(FIRST, b(Concat(-1), turned(b), turned(b, "z"))),
    "pad": lambda b: b(FIRST, b(Pad((0, 1, 2, 3, 0, 4, 5, 6)), turned(b))),
    "slice": lambda b: b(FIRST, b(Slice((0, 1), (9, 3), (-1, 1), (2, 1)), turned(b))),
    "softmax": lambda b: b(FIRST, b(Softmax((3,)), turned(b))),
    "log softmax": lambda b: b(FIRST, b(LogSoftmax((1, -1)), turned(b))),
    "maximum": lambda b: b(FIRST, b(ReduceMax((1, -1)), turned(b))),
    "to integers": lambda b: b(FIRST, b(Quantize("int8", Quantization((0.1,), (3,))), turned(b))),
    "and back": lambda b: b(FIRST, b(Dequantize(), b(LAST, b(Quantize("int8", Quantization((0.1,), (3,))), image(b))))),
}


@pytest.mark.parametrize("make", CANCEL.values(), ids=CANCEL)
def test_a_pair_cancels(make):
    assert "Transpose" not in kinds(apply(make, PASS))


LEFT = {
    "two in a row": (lambda b: b(LAST, turned(b)), ["Transpose"]),
    "mean left out": (lambda b: b(ReduceMean((1, 2), False), turned(b)), ["ReduceMean"]),
    "mean of the channels": (lambda b: b(ReduceMean((3,), False), turned(b)), ["ReduceMean"]),
    "mean that leaves a turn": (lambda b: b(ReduceMean((1,), False), turned(b)), ["ReduceMean", "Transpose"]),
    "squeeze": (
        lambda b: b(Squeeze((1, 3)), b(LAST, b.x("n", 1, 1, 3))),
        ["Squeeze"],
    ),
    "axes that are one long": (lambda b: b(FIRST, b.x("n", 4, 3, 1)), ["Reshape"]),
    "dense": (
        lambda b: b(FullyConnected(), b(Flatten(1), turned(b)), b.numbers(5, 24), b.numbers(5)),
        ["Flatten", "FullyConnected"],
    ),
    "dense behind a reshape": (
        lambda b: b(FullyConnected(), b(Reshape((-1, 24)), turned(b)), b.numbers(5, 24)),
        ["Flatten", "FullyConnected"],
    ),
    "dense, other turn": (
        lambda b: b(FullyConnected(), b(Flatten(1), b(Transpose((0, 3, 2, 1)), image(b))), b.numbers(5, 24)),
        ["Flatten", "FullyConnected"],
    ),
}


@pytest.mark.parametrize(("make", "left"), LEFT.values(), ids=LEFT)
def test_what_is_left(make, left):
    assert kinds(apply(make, PASS)) == left


STAYS = {
    "an output": lambda b: (b(Tanh(), (y := turned(b))), y),
    "read by others": lambda b: (b(Tanh(), (y := turned(b))), b(Sigmoid(), y)),
    "the other side is not turned": lambda b: b(Add(), turned(b), b.x("n", 4, 3, 2, name="z")),
    "turned otherwise": lambda b: b(Add(), turned(b), b(Transpose((0, 3, 2, 1)), b.x("n", 2, 3, 4, name="z"))),
    "the constant has more axes": lambda b: b(Add(), turned(b), b.numbers(1, 1, 1, 1, 2)),
    "a product": lambda b: b(MatMul(), turned(b), b.numbers(2, 5)),
    "the other side is what is turned": lambda b: b(Add(), b(Transpose((0, 1, 3, 2)), (y := b.x("n", 2, 4, 4))), y),
    "turned otherwise, of the same shape": lambda b: b(
        Add(), b(LAST, b.x("n", 4, 4, 4)), b(Transpose((0, 3, 2, 1)), b.x("n", 4, 4, 4, name="z"))
    ),
    "turned back otherwise elsewhere": lambda b: (
        b(Add(), b(LAST, b.x("n", 4, 4, 4)), (z := b.x("n", 4, 4, 4, name="z"))),
        b(LAST, z),
    ),
    "an axis of scales": lambda b: b(Quantize("int8", Quantization((0.1, 0.2), (0, 0), 3)), turned(b)),
    "dense, the batch moves": lambda b: b(
        FullyConnected(), b(Flatten(1), b(Transpose((1, 0, 2, 3)), b.x(2, 3, 4, 1))), b.numbers(5, 8)
    ),
    "dense, others read it": lambda b: (
        b(FullyConnected(), (y := b(Flatten(1), turned(b))), b.numbers(5, 24)),
        b(Tanh(), y),
    ),
    "dense, the weight is not constant": lambda b: b(FullyConnected(), b(Flatten(1), turned(b)), b.x(5, 24, name="w")),
    "dense, an open axis": lambda b: b(FullyConnected(), b(Flatten(1), b(LAST, b.x("n", 2, "h", 2))), b.numbers(5, 24)),
    "dense, rows of rows": lambda b: b(FullyConnected(), b(Reshape((0, 2, 12)), turned(b)), b.numbers(5, 12)),
    "dense, more rows": lambda b: b(FullyConnected(), b(Reshape((-1, 6)), turned(b)), b.numbers(5, 6)),
    "elements that move": lambda b: b(Transpose((0, 2, 1, 3)), b.x("n", 4, 3, 1)),
}


@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_stays(make):
    before = kinds(built(make))
    assert kinds(apply(make, PASS)) == before


def test_a_pair_cancels_even_if_others_read_between():
    graph = apply(lambda b: (b(Tanh(), b(FIRST, (y := turned(b)))), y), PASS)
    assert sorted(kinds(graph)) == ["Tanh", "Transpose"]
    assert graph.outputs["y"].producer.inputs[0].name == "x"


def test_what_is_not_turned_at_all_comes_to_an_end():
    still = Transpose((0, 1))
    apply(lambda b: (b(Add(), b(still, b.x("n", 2)), (z := b.x("n", 2, name="z"))), b(still, z)), PASS)


def test_a_mean_reads_past_a_transpose_that_others_read():
    graph = apply(lambda b: (b(ReduceMean((1, 2), False), (y := turned(b)), name="mean"), y), PASS)
    assert sorted(kinds(graph)) == ["ReduceMean", "Transpose"]
    assert graph.nodes["mean"].inputs[0].name == "x"


def test_a_sum_reads_what_is_turned_back_already():
    def make(b):
        z = b.x("n", 4, 3, 2, name="z")
        back = b(FIRST, z, name="back")
        return b(FIRST, b(Add(), turned(b), z, name="sum")), b(Tanh(), back)

    graph = apply(make, PASS)
    assert kinds(graph).count("Transpose") == 1
    assert [value.name for value in graph.nodes["sum"].inputs] == ["x", "back"]


def channels_last_block(b, x, name):
    """A residual block as tf2onnx writes it: a pair around each convolution."""
    y = b(LAST, b.conv(b(FIRST, x), 2, 1, name=f"{name}.1"))
    y = b(LAST, b.conv(b(FIRST, b(Relu(), y)), 2, 1, name=f"{name}.2"))
    return b(Relu(), b(Add(), b(Add(), y, b.numbers(2)), x))


def test_blocks_with_channels_last_keep_one_transpose_at_each_end():
    def make(b):
        x = b.x("n", 4, 3, 2)
        for i in range(3):
            x = channels_last_block(b, x, f"block{i}")
        return x

    before = built(make)
    after = optimize(before, check=True)
    check_same(before, after)
    assert kinds(after) == ["Transpose", *["Conv"] * 6, "Transpose"]


def test_the_weight_that_others_read_stays():
    def make(b):
        w = b.constant(b.numbers(5, 24), "w")
        return b(FullyConnected(), b(Flatten(1), turned(b)), w), b(FullyConnected(), b.x("n", 24, name="z"), w)

    graph = apply(make, PASS)
    assert set(graph.constants) == {"w", "w_1"}


def test_a_turned_weight_keeps_its_name():
    graph = apply(lambda b: b(FullyConnected(), b(Flatten(1), turned(b)), b.constant(b.numbers(5, 24), "w")), PASS)
    assert set(graph.constants) == {"w"}


def test_golden(golden):
    def make(b):
        x = b(Relu(), b(LAST, b.x("n", 2, 4, 3), name="to_nhwc"), name="relu")
        x = b(Add(), x, b.constant(np.array([1, 2], np.float32), "bias"), name="add")
        return b(Tanh(), b(FIRST, x, name="to_nchw"), name="tanh"), b(
            Unsqueeze((0,)), b(LAST, b.x(1, 3, 1, 2, name="z"))
        )

    golden("compiler/golden/passes/transposes.txt", before_and_after(make, PASS))
