"""Removal of no-ops."""

import numpy as np
import pytest

from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add, Div, Max, Min, Mul, Pow, Sub
from mlhood.compiler.operators.cast import Cast, Identity
from mlhood.compiler.operators.elementwise import Clip, LeakyRelu, Relu
from mlhood.compiler.operators.movement import Concat, Expand, Slice, Transpose
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from tests.compiler.passes.building import (
    Abs,
    ReduceL1,
    ReduceMax,
    ReduceMean,
    ReduceSum,
    Sigmoid,
    Tanh,
    apply,
    built,
    example,
    kinds,
)

PASS = "remove_no_ops"
ONE = ((1, 1), (1, 1), (0, 0, 0, 0), (1, 1))
TWO = ((2, 2), (2, 2), (0, 0, 0, 0), (1, 1))
f32 = np.float32


def image(b):
    return b.x("n", 2, 4, 4)


REMOVED = {
    "identity": lambda b: b(Tanh(), b(Identity(), image(b))),
    "cast": lambda b: b(Tanh(), b(Cast("float32"), image(b))),
    "transpose": lambda b: b(Tanh(), b(Transpose((0, 1, 2, 3)), image(b))),
    "reshape": lambda b: b(Tanh(), b(Reshape((-1, 2, 4, 4)), image(b))),
    "flatten": lambda b: b(Tanh(), b(Flatten(1), b.x("n", 7))),
    "squeeze": lambda b: b(Tanh(), b(Squeeze(()), image(b))),
    "unsqueeze": lambda b: b(Tanh(), b(Unsqueeze(()), image(b))),
    "expand": lambda b: b(Tanh(), b(Expand((1, 1, 4, 4)), image(b))),
    "pad": lambda b: b(Tanh(), b(Pad((0,) * 8, "reflect"), image(b))),
    "slice": lambda b: b(Tanh(), b(Slice((0, 0), (2**31, 9), (0, 1), (1, 1)), image(b))),
    "add": lambda b: b(Tanh(), b(Add(), image(b), -np.zeros((2, 1, 1), f32))),
    "add, commuted": lambda b: b(Tanh(), b(Add(), f32(-0.0), image(b))),
    "sub": lambda b: b(Tanh(), b(Sub(), image(b), np.zeros(4, f32))),
    "mul": lambda b: b(Tanh(), b(Mul(), np.ones(4, f32), image(b))),
    "div": lambda b: b(Tanh(), b(Div(), image(b), np.ones(1, f32))),
    "pow": lambda b: b(Tanh(), b(Pow(), image(b), np.ones((), f32))),
    "integers": lambda b: b(Abs(), b(Div(), b.x(3, element="int32"), np.int32(1))),
    "concat": lambda b: b(Tanh(), b(Concat(1), image(b))),
    "max pool": lambda b: b(Tanh(), b(MaxPool(*ONE), image(b))),
    "average pool": lambda b: b(Tanh(), b(AveragePool(*ONE), image(b))),
    "global average pool": lambda b: b(Tanh(), b(GlobalAveragePool(), b.x("n", 2, 1, 1))),
    "global max pool": lambda b: b(Tanh(), b(GlobalMaxPool(), b.x("n", 2, 1, 1))),
    "mean": lambda b: b(Tanh(), b(ReduceMean((2, 3)), b.x("n", 2, 1, 1))),
    "maximum": lambda b: b(Tanh(), b(ReduceMax(()), image(b))),
}


@pytest.mark.parametrize("make", REMOVED.values(), ids=REMOVED)
def test_removed(make):
    assert len(kinds(apply(make, PASS))) == 1


STAYS = {
    "cast": lambda b: b(Cast("float64"), image(b)),
    "transpose": lambda b: b(Transpose((0, 1, 3, 2)), image(b)),
    "reshape": lambda b: b(Reshape((-1, 4, 2, 4)), image(b)),
    "pad": lambda b: b(Pad((0,) * 7 + (1,)), image(b)),
    "slice backwards": lambda b: b(Slice((-1,), (-9,), (2,), (-1,)), image(b)),
    "slice of a dynamic axis": lambda b: b(Slice((0,), (3,), (0,), (1,)), image(b)),
    "add 0, which makes 0 of -0": lambda b: b(Add(), image(b), np.zeros((), f32)),
    "subtract -0, which makes 0 of -0": lambda b: b(Sub(), image(b), f32(-0.0)),
    "add a constant that is not 0": lambda b: b(Add(), image(b), np.array([0, 0, 0, 1], f32)),
    "add that broadcasts x": lambda b: b(Add(), b.x("n", 1), -np.zeros((1, 4), f32)),
    "add that adds an axis": lambda b: b(Add(), b.x("n", 2), -np.zeros((1, 1, 1), f32)),
    "0 - x": lambda b: b(Sub(), np.zeros((), f32), image(b)),
    "1 / x": lambda b: b(Div(), np.ones((), f32), image(b)),
    "1 to the power of x": lambda b: b(Pow(), np.ones((1, 2, 4, 4), f32), b.x(1, 2, 4, 4)),
    "concat": lambda b: b(Concat(1), *[image(b)] * 2),
    "max pool": lambda b: b(MaxPool(*TWO), image(b)),
    "strided max pool": lambda b: b(MaxPool((1, 1), (2, 2), (0,) * 4, (1, 1)), image(b)),
    "max pool of one element": lambda b: b(MaxPool((2, 2), (1, 1), (0, 0, 1, 1), (1, 1)), image(b)),
    "sum": lambda b: b(ReduceSum((2,)), image(b)),
    "norm": lambda b: b(ReduceL1((2, 3)), b.x("n", 2, 1, 1)),
}


@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_stays(make):
    assert len(kinds(apply(make, PASS))) == 1


# -- limits that x's range never exceeds

WITHOUT_EFFECT = {
    "relu of relu": lambda b: b(Relu(), b(Relu(), image(b))),
    "relu of a pool of relu": lambda b: b(Relu(), b(MaxPool(*TWO), b(Relu(), image(b)))),
    "relu of a mean of relu": lambda b: b(Relu(), b(AveragePool(*TWO, count_pads=True), b(Relu(), image(b)))),
    "relu of a reshape": lambda b: b(Relu(), b(Flatten(1), b(Sigmoid(), image(b)))),
    "relu of a sum": lambda b: b(Relu(), b(Add(), (y := b(Relu(), image(b))), y)),
    "relu of a constant": lambda b: b(Relu(), b(Max(), image(b), np.ones((), f32))),
    "relu of a concat": lambda b: b(Relu(), b(Concat(1), (y := b(Relu(), image(b))), y)),
    "relu of a pad": lambda b: b(Relu(), b(Pad((1,) * 8, "constant", 0.5), b(Relu(), image(b)))),
    "clip of clip": lambda b: b(Clip(-1.0, 7.0), b(Clip(0.0, 6.0), image(b))),
    "clip of tanh": lambda b: b(Clip(-1.0, 1.0), b(Tanh(), image(b))),
    "clip of a minimum": lambda b: b(Clip(None, 2.0), b(Min(), image(b), np.array([1, 2], f32).reshape(2, 1, 1))),
    "clip of leaky relu": lambda b: b(Clip(-0.2, None), b(LeakyRelu(0.1), b(Clip(-2.0, 3.0), image(b)))),
    "relu of a layer with relu": lambda b: b(Relu(), b.conv(image(b), activation=("Relu",))),
    "relu of a sum with clip": lambda b: b(Relu(), b(AddActivation(("Clip", 0.0, 6.0)), (x := image(b)), x)),
    "relu of unsigned": lambda b: b(Relu(), b(Identity(), b.x(5, element="uint8"))),
    "clip without limits": lambda b: b(Clip(), b(Tanh(), image(b))),
}


@pytest.mark.parametrize("make", WITHOUT_EFFECT.values(), ids=WITHOUT_EFFECT)
def test_a_limit_without_effect_is_removed(make):
    last = list(built(make).nodes)[-1]
    assert last not in apply(make, PASS).nodes


WITH_EFFECT = {
    "clip of relu": lambda b: b(Clip(0.0, 6.0), b(Relu(), image(b))),
    "clip that is tighter": lambda b: b(Clip(0.0, 5.0), b(Clip(0.0, 6.0), image(b))),
    "relu of tanh": lambda b: b(Relu(), b(Tanh(), image(b))),
    "relu of a difference": lambda b: b(Relu(), b(Sub(), b(Relu(), (x := image(b))), x)),
    "relu of a sum": lambda b: b(Relu(), b(Add(), b(Relu(), (x := image(b))), x)),
    "relu of a negative pad": lambda b: b(Relu(), b(Pad((1,) * 8, "constant", -1.0), b(Relu(), image(b)))),
    "relu of a concat": lambda b: b(Relu(), b(Concat(1), b(Relu(), (x := image(b))), x)),
    "relu of leaky relu": lambda b: b(Relu(), b(LeakyRelu(0.1), image(b))),
    "relu of a decreasing leaky relu": lambda b: b(Relu(), b(LeakyRelu(-0.1), b(Clip(None, 0.0), image(b)))),
    "clip of a mean with zeros": lambda b: b(
        Clip(1.0, None), b(AveragePool((3, 3), (1, 1), (1,) * 4, (1, 1), count_pads=True), b(Clip(1.0, 2.0), image(b)))
    ),
    "relu of a layer": lambda b: b(Relu(), b.conv(image(b))),
    "clip of leaky relu": lambda b: b(Clip(None, 1.0), b(LeakyRelu(0.1), b(Clip(-2.0, 3.0), image(b)))),
    "relu of windows inside the padding": lambda b: b(
        Relu(), b(MaxPool((2,), (1,), (1, 1), (2,)), b(Relu(), b.x("n", 2, 1)))
    ),
    "sum of int8 that overflows": lambda b: b(
        Clip(0, 127), b(Add(), (x := b(Clip(0, 100), b.x(9, element="int8"))), x)
    ),
    "clip by NaN": lambda b: b(Clip(float("nan"), None), b(Relu(), image(b))),
}


@pytest.mark.parametrize("make", WITH_EFFECT.values(), ids=WITH_EFFECT)
def test_a_limit_with_effect_stays(make):
    last = list(built(make).nodes)[-1]
    assert last in apply(make, PASS).nodes


def test_outputs_keep_their_names_if_no_node_remains():
    graph = apply(
        lambda b: (b(Identity(), (x := image(b))), b(Identity(), x), b(Identity(), b.constant(np.ones(2)))), PASS
    )
    assert kinds(graph) == []
    assert {name: value.name for name, value in graph.outputs.items()} == {"y": "x", "y1": "x", "y2": "c"}


def make(b):
    x = b(Relu(), b(Identity(), image(b)), name="first")
    y = b(Relu(), b(MaxPool(*TWO), x, name="pool"), name="idle")
    return b(Mul(), b(Add(), y, b.constant(-np.zeros(2, f32).reshape(2, 1, 1), "zero")), np.ones((), f32)), x


test_golden = example(PASS, make)
