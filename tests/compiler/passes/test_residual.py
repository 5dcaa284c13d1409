"""Fusion of residual additions into convolutions."""

import numpy as np

from mlhood.compiler.hir import verify
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from tests.compiler.passes.building import Tanh, apply, becomes, example, stays

PASS = "fuse_residual"
RELU = AddActivation(("Relu",))


def image(b, name="x"):
    return b.x("n", 2, 4, 4, name=name)


def branch(b):
    return image(b, "z")


FUSED = {
    "sum": (lambda b: b(Add(), b.conv(image(b)), branch(b)), ["Conv"]),
    "sum, commuted": (lambda b: b(Add(), branch(b), b.conv(image(b), bias=False)), ["Conv"]),
    "sum with an activation": (lambda b: b(RELU, b.conv(image(b)), branch(b)), ["Conv"]),
    "block": (lambda b: b(Add(), b.conv(b(Relu(), b.conv(x := image(b))), name="b"), x), ["Conv", "Relu", "Conv"]),
    "two convolutions": (lambda b: b(Add(), b.conv(x := image(b)), b.conv(x, name="b")), ["Conv", "Conv"]),
    "two sums": (lambda b: b(Add(), b(Add(), b.conv(image(b)), (z := branch(b))), z), ["Conv", "Add"]),
    "the branch depends on the other convolution": (
        lambda b: b(Add(), (c := b.conv(image(b))), b.conv(b(Tanh(), c), name="late")),
        ["Conv", "Tanh", "Conv"],
    ),
}


test_fused = becomes(PASS, FUSED)


STAYS = {
    "two users": lambda b: (b(Add(), (c := b.conv(image(b))), branch(b)), b(Tanh(), c)),
    "an output": lambda b: (b(Add(), (c := b.conv(image(b))), branch(b)), c),
    "added to itself": lambda b: b(Add(), (c := b.conv(image(b))), c),
    "an activation": lambda b: b(Add(), b.conv(image(b), activation=("Relu",)), branch(b)),
    "a branch already": lambda b: b(Add(), b.conv(image(b), z=branch(b)), second_branch(b)),
    "a branch that is broadcast": lambda b: b(Add(), b.conv(image(b)), b.x(2, 1, 1, name="z")),
    "a convolution that is broadcast": lambda b: b(Add(), b.conv(b.x("n", 2, 1, 1)), branch(b)),
    "another batch": lambda b: b(Add(), b.conv(b.x(1, 2, 4, 4)), branch(b)),
    "a constant": lambda b: b(Add(), b.conv(b.x(1, 2, 4, 4)), b.numbers(1, 2, 4, 4)),
    "the branch depends on the convolution": lambda b: b(Add(), (c := b.conv(image(b))), b(Tanh(), c)),
}


def second_branch(b):
    return image(b, "z2")


test_stays = stays(PASS, STAYS)


def test_names():
    graph = apply(FUSED["block"][0], PASS)
    verify(graph)
    node = graph.nodes["b"]
    assert [value and value.name for value in node.inputs] == ["relu", "b.weight", "b.bias", "x"]
    assert node.outputs[0].name == "add"


def make(b):
    b.numbers = lambda *shape: np.ones(shape, np.float32)
    y = b(Relu(), b.conv((x := image(b)), bias=False, name="conv1"), name="relu1")
    return b(Relu(), b(Add(), b.conv(y, bias=False, name="conv2"), x, name="sum"), name="relu2")


test_golden = example(PASS, make)
