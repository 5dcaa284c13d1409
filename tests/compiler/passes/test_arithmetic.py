"""Folding of arithmetic with constants into the preceding layer."""

import numpy as np
import pytest

from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Pow, Sub
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import BatchNormalization
from tests.compiler.passes.building import Tanh, apply, before_and_after, built, conv, kinds

PASS = "fold_arithmetic"


def layer(b, **attributes):
    return b.conv(b.x("n", 3, 4, 4), features=2, **attributes)


def dense(b):
    return b(FullyConnected(), b.x("n", 5, 3), b.numbers(2, 3), b.numbers(2))


def channels(b):
    return b.numbers(2, 1, 1)


FOLDED = {
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


@pytest.mark.parametrize("make", FOLDED.values(), ids=FOLDED)
def test_folded(make):
    assert kinds(apply(make, PASS)) in (["Conv"], ["FullyConnected"])


STAYS = {
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


@pytest.mark.parametrize("make", STAYS.values(), ids=STAYS)
def test_stays(make):
    before = kinds(built(make))
    assert kinds(apply(make, PASS)) == before


def test_the_same_constant_may_be_weight_and_factor():
    def make(b):
        c = b.constant(b.numbers(1, 1, 1, 1), "c")
        return b(Mul(), b(conv(), b.x("n", 1, 4, 4), c), c)

    assert kinds(apply(make, PASS)) == ["Conv"]


def test_golden(golden):
    def make(b):
        w = b.constant(np.array([1, 2], np.float32).reshape(2, 1, 1, 1), "w")
        x = b(conv(), b.x("n", 1, 2, 2), w, b.constant(np.array([1, 1], np.float32), "b"), name="conv")
        x = b(Mul(), x, b.constant(np.array([2, 4], np.float32).reshape(2, 1, 1), "factor"), name="scaled")
        return b(Sub(), x, b.constant(np.float32(3), "three"), name="shifted")

    golden("compiler/golden/passes/arithmetic.txt", before_and_after(make, PASS))
