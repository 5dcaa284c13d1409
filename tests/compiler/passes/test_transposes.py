"""Sinking and cancellation of Transposes."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add, Greater, Mul, Pow, PRelu, Sub, Where
from mlhood.compiler.operators.cast import Cast
from mlhood.compiler.operators.elementwise import Clip, LeakyRelu, Relu
from mlhood.compiler.operators.indexing import TopK
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
    becomes,
    built,
    check_same,
    example,
    kinds,
    stays,
)

PASS = "sink_transposes"
LAST, FIRST = Transpose((0, 2, 3, 1)), Transpose((0, 3, 1, 2))  # to channels last, and back


def image(b, name="x"):
    return b.x("n", 2, 4, 3, name=name)


def transposed(b, name="x"):
    return b(LAST, image(b, name))


CANCEL = {
    "two": lambda b: b(FIRST, transposed(b)),
    "function": lambda b: b(FIRST, b(Sigmoid(), transposed(b))),
    "relu": lambda b: b(FIRST, b(Relu(), transposed(b))),
    "leaky relu": lambda b: b(FIRST, b(LeakyRelu(), transposed(b))),
    "clip": lambda b: b(FIRST, b(Clip(0.0, 1.0), transposed(b))),
    "cast": lambda b: b(FIRST, b(Cast("float64"), transposed(b))),
    "sum of two": lambda b: b(FIRST, b(Add(), transposed(b), transposed(b, "z"))),
    "sum of a value and itself": lambda b: b(FIRST, b(Add(), (y := transposed(b)), y)),
    "sum with an activation": lambda b: b(FIRST, b(AddActivation(("Relu",)), transposed(b), transposed(b, "z"))),
    "scalar": lambda b: b(FIRST, b(Mul(), transposed(b), np.float32(2))),
    "vector of channels": lambda b: b(FIRST, b(Sub(), transposed(b), b.numbers(2))),
    "constant of full rank": lambda b: b(FIRST, b(Sub(), b.numbers(3, 4, 3, 2), transposed(b))),
    "slope": lambda b: b(FIRST, b(PRelu(), transposed(b), b.numbers(2))),
    "power": lambda b: b(FIRST, b(Pow(), b(Abs(), transposed(b)), b.numbers(3, 1))),
    "comparison": lambda b: b(FIRST, b(Greater(), transposed(b), b.numbers(4, 1, 1))),
    "where": lambda b: b(
        FIRST, b(Where(), b(Greater(), transposed(b), np.float32(0)), transposed(b, "z"), b.numbers(1, 1, 3, 2))
    ),
    "concat": lambda b: b(FIRST, b(Concat(-1), transposed(b), transposed(b, "z"))),
    "pad": lambda b: b(FIRST, b(Pad((0, 1, 2, 3, 0, 4, 5, 6)), transposed(b))),
    "slice": lambda b: b(FIRST, b(Slice((0, 1), (9, 3), (-1, 1), (2, 1)), transposed(b))),
    "softmax": lambda b: b(FIRST, b(Softmax((3,)), transposed(b))),
    "log softmax": lambda b: b(FIRST, b(LogSoftmax((1, -1)), transposed(b))),
    "maximum": lambda b: b(FIRST, b(ReduceMax((1, -1)), transposed(b))),
    "quantize": lambda b: b(FIRST, b(Quantize("int8", Quantization((0.1,), (3,))), transposed(b))),
    "dequantize": lambda b: b(
        FIRST, b(Dequantize(), b(LAST, b(Quantize("int8", Quantization((0.1,), (3,))), image(b))))
    ),
}


@pytest.mark.parametrize("make", CANCEL.values(), ids=CANCEL)
def test_a_pair_cancels(make):
    assert "Transpose" not in kinds(apply(make, PASS))


REMAINING = {
    "two consecutive": (lambda b: b(LAST, transposed(b)), ["Transpose"]),
    "mean, keepdims=0": (lambda b: b(ReduceMean((1, 2), False), transposed(b)), ["ReduceMean"]),
    "mean of the channels": (lambda b: b(ReduceMean((3,), False), transposed(b)), ["ReduceMean"]),
    "mean of one spatial axis": (lambda b: b(ReduceMean((1,), False), transposed(b)), ["ReduceMean", "Transpose"]),
    "squeeze": (
        lambda b: b(Squeeze((1, 3)), b(LAST, b.x("n", 1, 1, 3))),
        ["Squeeze"],
    ),
    "axes of size 1": (lambda b: b(FIRST, b.x("n", 4, 3, 1)), ["Reshape"]),
    "dense": (
        lambda b: b(FullyConnected(), b(Flatten(1), transposed(b)), b.numbers(5, 24), b.numbers(5)),
        ["Flatten", "FullyConnected"],
    ),
    "dense after a reshape": (
        lambda b: b(FullyConnected(), b(Reshape((-1, 24)), transposed(b)), b.numbers(5, 24)),
        ["Flatten", "FullyConnected"],
    ),
    "dense, another permutation": (
        lambda b: b(FullyConnected(), b(Flatten(1), b(Transpose((0, 3, 2, 1)), image(b))), b.numbers(5, 24)),
        ["Flatten", "FullyConnected"],
    ),
}


test_remaining_operators = becomes(PASS, REMAINING)


STAYS = {
    "an output": lambda b: (b(Tanh(), (y := transposed(b))), y),
    "several uses": lambda b: (b(Tanh(), (y := transposed(b))), b(Sigmoid(), y)),
    "the other operand is not transposed": lambda b: b(Add(), transposed(b), b.x("n", 4, 3, 2, name="z")),
    "another permutation": lambda b: b(Add(), transposed(b), b(Transpose((0, 3, 2, 1)), b.x("n", 2, 3, 4, name="z"))),
    "the constant has more axes": lambda b: b(Add(), transposed(b), b.numbers(1, 1, 1, 1, 2)),
    "an operator with two results": lambda b: b(FIRST, b(TopK(2), transposed(b))),
    "a matrix product": lambda b: b(MatMul(), transposed(b), b.numbers(2, 5)),
    "the other operand is the Transpose's input": lambda b: b(
        Add(), b(Transpose((0, 1, 3, 2)), (y := b.x("n", 2, 4, 4))), y
    ),
    "another permutation, of the same shape": lambda b: b(
        Add(), b(LAST, b.x("n", 4, 4, 4)), b(Transpose((0, 3, 2, 1)), b.x("n", 4, 4, 4, name="z"))
    ),
    "another inverse elsewhere": lambda b: (
        b(Add(), b(LAST, b.x("n", 4, 4, 4)), (z := b.x("n", 4, 4, 4, name="z"))),
        b(LAST, z),
    ),
    "per-axis quantisation": lambda b: b(Quantize("int8", Quantization((0.1, 0.2), (0, 0), 3)), transposed(b)),
    "dense, the batch moves": lambda b: b(
        FullyConnected(), b(Flatten(1), b(Transpose((1, 0, 2, 3)), b.x(2, 3, 4, 1))), b.numbers(5, 8)
    ),
    "dense, several uses": lambda b: (
        b(FullyConnected(), (y := b(Flatten(1), transposed(b))), b.numbers(5, 24)),
        b(Tanh(), y),
    ),
    "dense, the weight is not constant": lambda b: b(
        FullyConnected(), b(Flatten(1), transposed(b)), b.x(5, 24, name="w")
    ),
    "dense, a dynamic axis": lambda b: b(
        FullyConnected(), b(Flatten(1), b(LAST, b.x("n", 2, "h", 2))), b.numbers(5, 24)
    ),
    "dense, rank 3": lambda b: b(FullyConnected(), b(Reshape((0, 2, 12)), transposed(b)), b.numbers(5, 12)),
    "dense, more rows": lambda b: b(FullyConnected(), b(Reshape((-1, 6)), transposed(b)), b.numbers(5, 6)),
    "axes larger than 1": lambda b: b(Transpose((0, 2, 1, 3)), b.x("n", 4, 3, 1)),
}


test_stays = stays(PASS, STAYS)


def test_a_pair_cancels_even_with_another_use_between():
    graph = apply(lambda b: (b(Tanh(), b(FIRST, (y := transposed(b)))), y), PASS)
    assert sorted(kinds(graph)) == ["Tanh", "Transpose"]
    assert graph.outputs["y"].producer.inputs[0].name == "x"


def test_identity_permutations_terminate():
    identity = Transpose((0, 1))
    apply(lambda b: (b(Add(), b(identity, b.x("n", 2)), (z := b.x("n", 2, name="z"))), b(identity, z)), PASS)


def test_a_mean_bypasses_a_transpose_with_other_uses():
    graph = apply(lambda b: (b(ReduceMean((1, 2), False), (y := transposed(b)), name="mean"), y), PASS)
    assert sorted(kinds(graph)) == ["ReduceMean", "Transpose"]
    assert graph.nodes["mean"].inputs[0].name == "x"


def test_an_addition_uses_an_existing_inverse_transpose():
    def make(b):
        z = b.x("n", 4, 3, 2, name="z")
        back = b(FIRST, z, name="back")
        return b(FIRST, b(Add(), transposed(b), z, name="sum")), b(Tanh(), back)

    graph = apply(make, PASS)
    assert kinds(graph).count("Transpose") == 1
    assert [value.name for value in graph.nodes["sum"].inputs] == ["x", "back"]


def channels_last_block(b, x, name):
    """Return a residual block as tf2onnx writes it, with a pair of Transposes around each convolution."""
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


def test_a_weight_with_other_uses_stays():
    def make(b):
        w = b.constant(b.numbers(5, 24), "w")
        return b(FullyConnected(), b(Flatten(1), transposed(b)), w), b(FullyConnected(), b.x("n", 24, name="z"), w)

    graph = apply(make, PASS)
    assert set(graph.constants) == {"w", "w_1"}


def test_a_permuted_weight_keeps_its_name():
    graph = apply(lambda b: b(FullyConnected(), b(Flatten(1), transposed(b)), b.constant(b.numbers(5, 24), "w")), PASS)
    assert set(graph.constants) == {"w"}


def make(b):
    x = b(Relu(), b(LAST, b.x("n", 2, 4, 3), name="to_nhwc"), name="relu")
    x = b(Add(), x, b.constant(np.array([1, 2], np.float32), "bias"), name="add")
    return b(Tanh(), b(FIRST, x, name="to_nchw"), name="tanh"), b(Unsqueeze((0,)), b(LAST, b.x(1, 3, 1, 2, name="z")))


test_golden = example(PASS, make)
