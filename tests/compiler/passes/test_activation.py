"""Fusion of activations into layers and additions."""

import numpy as np
import pytest

from mlhood.compiler.operators.arithmetic import Add, Mul
from mlhood.compiler.operators.elementwise import Clip, Elu, LeakyRelu, Relu
from mlhood.compiler.operators.matrix import FullyConnected
from tests.compiler.passes.building import Exp, HardSwish, Sigmoid, Tanh, apply, example, kinds, stays

PASS = "fuse_activation"


def image(b):
    return b.x("n", 2, 4, 4)


def dense(b):
    return b(FullyConnected(), b.x("n", 3), b.numbers(2, 3))


ACTIVATIONS = [Relu(), Clip(0.0, 6.0), Clip(None, 1.0), LeakyRelu(0.2), Sigmoid(), Tanh(), HardSwish()]


@pytest.mark.parametrize("activation", ACTIVATIONS, ids=repr)
@pytest.mark.parametrize("layer", [lambda b: b.conv(image(b)), dense, lambda b: b(Add(), (x := image(b)), x)])
def test_fused(layer, activation):
    (node,) = apply(lambda b: b(activation, layer(b)), PASS).nodes.values()
    name, *attributes = node.operator.activation
    assert (name, attributes) == (activation.name, list(activation.attributes.values()))


def test_with_a_residual_branch():
    make = lambda b: b(Relu(), b.conv((x := image(b)), z=x))  # noqa: E731
    assert kinds(apply(make, PASS)) == ["Conv"]


STAYS = {
    "two users": lambda b: (b(Relu(), (y := b.conv(image(b)))), b(Tanh(), b(Mul(), y, y))),
    "an output": lambda b: (b(Relu(), (y := b.conv(image(b)))), y),
    "an activation already": lambda b: b(Tanh(), b.conv(image(b), activation=("Relu",))),
    "a dense layer with one": lambda b: b(Relu(), b(FullyConnected(("Tanh",)), b.x("n", 3), b.numbers(2, 3))),
    "an activation that cannot be fused": lambda b: b(Elu(), b.conv(image(b))),
    "another function": lambda b: b(Exp(), b.conv(image(b))),
    "another operator before": lambda b: b(Relu(), b(Mul(), (x := image(b)), x)),
    "an input": lambda b: b(Relu(), image(b)),
}


test_stays = stays(PASS, STAYS)


def test_only_the_first_of_two_is_fused():
    assert kinds(apply(lambda b: b(Tanh(), b(Relu(), b.conv(image(b)))), PASS)) == ["Conv", "Tanh"]


def test_the_node_keeps_the_layers_name_and_the_value_the_activations():
    graph = apply(lambda b: b(Relu(), b.conv(image(b)), name="relu"), PASS)
    assert graph.nodes["conv"].outputs[0].name == "relu"


def make(b):
    b.numbers = lambda *shape: np.ones(shape, np.float32)
    x = b(Relu(), b.conv(b.x("n", 1, 2, 2), name="conv"), name="relu")
    return b(Clip(0.0, 6.0), b(Add(), x, x, name="sum"), name="relu6")


test_golden = example(PASS, make)
