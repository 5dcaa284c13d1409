"""Folding of batch normalization into the preceding layer."""

import numpy as np
import pytest

from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.transposed_convolution import ConvTranspose
from tests.compiler.passes.building import Tanh, apply, before_and_after, built, conv, kinds

PASS = "fold_batch_normalization"


def statistics(b, channels=2):
    scale, bias, mean = (b.numbers(channels) for _ in range(3))
    return scale, bias, mean, np.abs(b.numbers(channels)) + np.float32(0.1)


def norm(b, x, channels=2):
    return b(BatchNormalization(1e-3), x, *statistics(b, channels))


def image(b, name="x"):
    return b.x("n", 4, 3, 3, name=name)


def dense(b, *shape):
    return b(FullyConnected(), b.x(*shape), b.numbers(2, 3), b.numbers(2))


FOLDED = {
    "convolution": lambda b: norm(b, b.conv(image(b))),
    "without a bias": lambda b: norm(b, b.conv(image(b), bias=False)),
    "padded and strided": lambda b: norm(b, b.conv(image(b), size=3, pads=(1,) * 4, strides=(2, 2))),
    "groups": lambda b: norm(b, b(conv(group=2), image(b), b.numbers(6, 2, 1, 1), b.numbers(6)), 6),
    "in one dimension": lambda b: norm(
        b, b(conv(strides=(1,), pads=(0, 0), dilations=(1,)), b.x("n", 4, 5), b.numbers(2, 4, 3))
    ),
    "dense": lambda b: norm(b, dense(b, "n", 3)),
    "twice": lambda b: norm(b, norm(b, b.conv(image(b)))),
}


def transposed(b, group=1, bias=True):
    operator = ConvTranspose((2, 2), (0, 0, 0, 0), (1, 1), (1, 1), group)
    return b(operator, image(b), b.numbers(4, 3, 2, 2), b.numbers(3 * group) if bias else None)


TRANSPOSED = {
    "convolution": lambda b: norm(b, transposed(b), 3),
    "without a bias": lambda b: norm(b, transposed(b, bias=False), 3),
    "groups": lambda b: norm(b, transposed(b, 2), 6),
    "twice": lambda b: norm(b, norm(b, transposed(b, 4), 12), 12),
}


@pytest.mark.parametrize("make", TRANSPOSED.values(), ids=TRANSPOSED)
def test_folded_into_a_transposed_convolution(make):
    graph = apply(make, PASS)
    assert kinds(graph) == ["ConvTranspose"]
    assert len(next(iter(graph.nodes.values())).inputs) == 3


@pytest.mark.parametrize("make", FOLDED.values(), ids=FOLDED)
def test_folded(make):
    graph = apply(make, PASS)
    assert kinds(graph) in (["Conv"], ["FullyConnected"])
    assert len(next(iter(graph.nodes.values())).inputs) == 3


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
    "the channels are not the features": lambda b: norm(b, dense(b, "n", 5, 3), 5),
    "no variance": negative_variance,
    "no preceding layer": lambda b: norm(b, image(b), 4),
}


@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_stays(make):
    before = kinds(built(make))
    assert kinds(apply(make, PASS)) == before


def test_a_weight_that_would_overflow_stays():
    assert kinds(apply(overflow, PASS)) == ["Conv", "BatchNormalization"]


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


def test_golden(golden):
    def make(b):
        x = b(conv(), b.x("n", 1, 2, 2), b.constant(np.array([1, 2], np.float32).reshape(2, 1, 1, 1), "w"), name="conv")
        numbers = {"scale": [1, 2], "bias": [3, 4], "mean": [5, 6], "variance": [4, 1]}
        constants = [b.constant(np.array(value, np.float32), name) for name, value in numbers.items()]
        return b(BatchNormalization(0.0), x, *constants, name="norm")

    golden("compiler/golden/passes/batch_normalization.txt", before_and_after(make, PASS))
