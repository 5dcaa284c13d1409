"""Folding of batch normalization, and of arithmetic with constants, into the preceding layer."""

import numpy as np
import pytest

from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.transposed_convolution import ConvTranspose
from tests.compiler.passes.building import Tanh, apply, conv, example, kinds, stays

PASS = "fold_affine"


def layer(b, **attributes):
    return b.conv(b.x("n", 3, 4, 4), features=2, **attributes)


def dense(b):
    return b(FullyConnected(), b.x("n", 5, 3), b.numbers(2, 3), b.numbers(2))


def channels(b):
    return b.numbers(2, 1, 1)


ARITHMETIC = {
    "add": lambda b: b(Add(), layer(b), channels(b)),
    "add to no bias": lambda b: b(Add(), layer(b, bias=False), channels(b)),
    "add, commuted": lambda b: b(Add(), b.numbers(1, 2, 1, 1), layer(b)),
    "add a scalar": lambda b: b(Add(), layer(b), np.float32(2)),
    "add to a residual branch": lambda b: b(Add(), layer(b, z=b.x("n", 2, 4, 4, name="z")), channels(b)),
    "subtract": lambda b: b(Sub(), layer(b), channels(b)),
    "subtract from": lambda b: b(Sub(), channels(b), layer(b)),
    "multiply": lambda b: b(Mul(), layer(b), channels(b)),
    "multiply without a bias": lambda b: b(Mul(), channels(b), layer(b, bias=False)),
    "multiply by a scalar": lambda b: b(Mul(), layer(b), b.numbers(1, 1, 1, 1)),
    "divide": lambda b: b(Div(), layer(b), channels(b)),
    "a chain": lambda b: b(
        Add(), b(Mul(), b(Sub(), b(Div(), layer(b), channels(b)), channels(b)), channels(b)), channels(b)
    ),
    "a chain with a batch normalization": lambda b: b(
        Mul(), b(BatchNormalization(), b(Add(), layer(b), channels(b)), *np.ones((4, 2), np.float32)), channels(b)
    ),
    "dense": lambda b: b(Mul(), b(Add(), dense(b), b.numbers(2)), b.numbers(1, 1, 2)),
    "a run-time weight and a sum": lambda b: b(
        Add(), b(conv(), b.x("n", 3, 4, 4), b.x(2, 3, 1, 1, name="w")), channels(b)
    ),
}


@pytest.mark.parametrize("make", ARITHMETIC.values(), ids=ARITHMETIC)
def test_arithmetic_is_folded(make):
    assert kinds(apply(make, PASS)) in (["Conv"], ["FullyConnected"])


ARITHMETIC_STAYS = {
    "divide by the layer": lambda b: b(Div(), channels(b), layer(b)),
    "divide by zero": lambda b: b(Div(), layer(b), np.zeros((2, 1, 1), np.float32)),
    "power": lambda b: b(Pow(), layer(b), np.float32(2)),
    "along the width": lambda b: b(Mul(), layer(b), b.numbers(4)),
    "along the width, as wide as the features": lambda b: b(Mul(), b.conv(b.x("n", 3, 2, 2)), b.numbers(2)),
    "along the batch": lambda b: b(Mul(), b.conv(b.x(2, 3, 4, 4)), b.numbers(2, 1, 1, 1)),
    "more axes": lambda b: b(Mul(), layer(b), b.numbers(1, 1, 2, 1, 1)),
    "more channels": lambda b: b(Mul(), b.conv(b.x("n", 3, 4, 4), features=1), b.numbers(3, 1, 1)),
    "two users": lambda b: (b(Mul(), (y := layer(b)), channels(b)), b(Tanh(), y)),
    "an output": lambda b: (b(Mul(), (y := layer(b)), channels(b)), y),
    "an activation": lambda b: b(Mul(), layer(b, activation=("Relu",)), channels(b)),
    "an addition after an activation": lambda b: b(Add(), layer(b, activation=("Relu",)), channels(b)),
    "scaling a residual branch": lambda b: b(Mul(), layer(b, z=b.x("n", 2, 4, 4, name="z")), channels(b)),
    "a run-time weight": lambda b: b(Mul(), b(conv(), b.x("n", 3, 4, 4), b.x(2, 3, 1, 1, name="w")), channels(b)),
    "a run-time bias": lambda b: b(
        Add(), b(conv(), b.x("n", 3, 4, 4), b.numbers(2, 3, 1, 1), b.x(2, name="bias")), channels(b)
    ),
    "itself": lambda b: b(Mul(), (y := layer(b)), y),
    "integers": lambda b: b(
        Div(), b(conv(), b.x("n", 1, 2, 2, element="int32"), np.full((1, 1, 1, 1), 3, np.int32)), np.int32(2)
    ),
    "not a constant": lambda b: b(Add(), layer(b), b.x(2, 1, 1, name="z")),
    "infinity": lambda b: b(Add(), layer(b), np.full((2, 1, 1), np.inf, np.float32)),
    "the rows of a dense layer": lambda b: b(Mul(), dense(b), b.numbers(5, 1)),
}


test_arithmetic_stays = stays(PASS, ARITHMETIC_STAYS)


def test_the_same_constant_may_be_weight_and_factor():
    def make(b):
        c = b.constant(b.numbers(1, 1, 1, 1), "c")
        return b(Mul(), b(conv(), b.x("n", 1, 4, 4), c), c)

    assert kinds(apply(make, PASS)) == ["Conv"]


# -- batch normalization


def statistics(b, channels=2):
    scale, bias, mean = (b.numbers(channels) for _ in range(3))
    return scale, bias, mean, np.abs(b.numbers(channels)) + np.float32(0.1)


def norm(b, x, channels=2):
    return b(BatchNormalization(1e-3), x, *statistics(b, channels))


def image(b, name="x"):
    return b.x("n", 4, 3, 3, name=name)


FOLDED = {
    "convolution": lambda b: norm(b, b.conv(image(b))),
    "without a bias": lambda b: norm(b, b.conv(image(b), bias=False)),
    "padded and strided": lambda b: norm(b, b.conv(image(b), size=3, pads=(1,) * 4, strides=(2, 2))),
    "groups": lambda b: norm(b, b(conv(group=2), image(b), b.numbers(6, 2, 1, 1), b.numbers(6)), 6),
    "in one dimension": lambda b: norm(
        b, b(conv(strides=(1,), pads=(0, 0), dilations=(1,)), b.x("n", 4, 5), b.numbers(2, 4, 3))
    ),
    "dense": lambda b: norm(b, b(FullyConnected(), b.x("n", 3), b.numbers(2, 3), b.numbers(2))),
    "twice": lambda b: norm(b, norm(b, b.conv(image(b)))),
}


def transposed(b, group=1, bias=True):
    operator = ConvTranspose((2, 2), (0, 0, 0, 0), (1, 1), (1, 1), group)
    return b(operator, image(b), b.numbers(4, 3, 2, 2), b.numbers(3 * group) if bias else None)


FOLDED |= {
    "transposed convolution": lambda b: norm(b, transposed(b), 3),
    "transposed, without a bias": lambda b: norm(b, transposed(b, bias=False), 3),
    "transposed, groups": lambda b: norm(b, transposed(b, 2), 6),
    "transposed, twice": lambda b: norm(b, norm(b, transposed(b, 4), 12), 12),
}


@pytest.mark.parametrize("make", FOLDED.values(), ids=FOLDED)
def test_folded(make):
    (node,) = apply(make, PASS).nodes.values()
    assert node.operator.name in ("Conv", "ConvTranspose", "FullyConnected")
    assert len(node.inputs) == 3


def not_constant(b):
    scale, _, mean, variance = statistics(b)
    return b(BatchNormalization(), b.conv(image(b)), scale, b.x(2, name="beta"), mean, variance)


def negative_variance(b):
    scale, bias, mean, _ = statistics(b)
    return b(BatchNormalization(0.0), b.conv(image(b)), scale, bias, mean, np.array([1, 0], np.float32))


def overflow(b):
    scale, bias, mean, variance = statistics(b)
    return b(BatchNormalization(), b.conv(image(b)), scale * np.float32(1e38), bias, mean, variance / np.float32(1e6))


STAYS = {
    "two users": lambda b: (norm(b, (y := b.conv(image(b)))), b(Tanh(), y)),
    "an output of the graph": lambda b: (norm(b, (y := b.conv(image(b)))), y),
    "an activation fused": lambda b: norm(b, b.conv(image(b), activation=("Relu",))),
    "an activation between": lambda b: norm(b, b(Relu(), b.conv(image(b)))),
    "a residual branch": lambda b: norm(b, b.conv(image(b), z=b.x("n", 2, 3, 3, name="z"))),
    "a weight that is not constant": lambda b: norm(b, b(conv(), image(b), b.x(2, 4, 1, 1, name="w"))),
    "a bias that is not constant": lambda b: norm(b, b(conv(), image(b), b.numbers(2, 4, 1, 1), b.x(2, name="bias"))),
    "statistics that are not constant": not_constant,
    "the channels are not the features": lambda b: norm(b, dense(b), 5),
    "no variance": negative_variance,
    "a weight that would overflow": overflow,
    "no preceding layer": lambda b: norm(b, image(b), 4),
}


test_stays = stays(PASS, STAYS)


def test_layers_that_share_weights_get_separate_ones():
    def make(b):
        w, bias = b.constant(b.numbers(2, 2, 1, 1), "w"), b.constant(b.numbers(2), "b")
        x = norm(b, b(conv(), b.x("n", 2, 3, 3), w, bias))
        x = norm(b, b(conv(), x, w, bias))
        return b(conv(), x, w, bias)

    graph = apply(make, PASS)
    assert kinds(graph) == ["Conv"] * 3
    assert {name for name in graph.constants if name[0] in "wb"} == {"w", "w_1", "w_2", "b", "b_1", "b_2"}


def test_weights_keep_their_names():
    graph = apply(lambda b: norm(b, b.conv(image(b))), PASS)
    (node,) = graph.nodes.values()
    assert [value.name for value in node.inputs] == ["x", "conv.weight", "conv.bias"]
    assert (node.name, node.outputs[0].name) == ("conv", "batchnormalization")


def make(b):
    x = b(conv(), b.x("n", 1, 2, 2), b.constant(np.array([1, 2], np.float32).reshape(2, 1, 1, 1), "w"), name="conv")
    numbers = {"scale": [1, 2], "bias": [3, 4], "mean": [5, 6], "variance": [4, 1]}
    constants = [b.constant(np.array(value, np.float32), name) for name, value in numbers.items()]
    x = b(BatchNormalization(0.0), x, *constants, name="norm")
    x = b(Mul(), x, b.constant(np.array([2, 4], np.float32).reshape(2, 1, 1), "factor"), name="scaled")
    return b(Sub(), x, b.constant(np.float32(3), "three"), name="shifted")


test_golden = example(PASS, make)
