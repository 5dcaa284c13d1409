"""Canonicalisation and merging of Min, Max, Clip and Relu."""

import numpy as np
import pytest

from mlhood.compiler.operators.arithmetic import Max, Min
from mlhood.compiler.operators.elementwise import Clip, Relu
from tests.compiler.passes.building import Tanh, apply, example, stays

PASS = "limits_to_clip"
f32 = np.float32


def x(b):
    return b.x("n", 4)


MERGED = {
    "maximum": (lambda b: b(Max(), x(b), f32(-1)), [Clip(-1.0, None)]),
    "minimum": (lambda b: b(Min(), f32(1), x(b)), [Clip(None, 1.0)]),
    "a constant of equal elements": (lambda b: b(Min(), np.full(4, 2, f32), x(b)), [Clip(None, 2.0)]),
    "relu": (lambda b: b(Max(), x(b), f32(0)), [Relu()]),
    "relu6": (lambda b: b(Min(), b(Max(), x(b), f32(0)), f32(6)), [Clip(0.0, 6.0)]),
    "relu6, commuted": (lambda b: b(Max(), b(Min(), x(b), f32(6)), f32(0)), [Clip(0.0, 6.0)]),
    "relu and clip": (lambda b: b(Clip(None, 6.0), b(Relu(), x(b))), [Clip(0.0, 6.0)]),
    "clip and relu": (lambda b: b(Relu(), b(Clip(-1.0, 6.0), x(b))), [Clip(0.0, 6.0)]),
    "two relus": (lambda b: b(Relu(), b(Relu(), x(b))), [Relu()]),
    "overlapping ranges": (lambda b: b(Clip(0.0, 3.0), b(Clip(-1.0, 2.0), x(b))), [Clip(0.0, 2.0)]),
    "disjoint ranges, above": (lambda b: b(Clip(3.0, 4.0), b(Clip(0.0, 1.0), x(b))), [Clip(3.0, 3.0)]),
    "disjoint ranges, below": (lambda b: b(Clip(-4.0, -3.0), b(Clip(0.0, 1.0), x(b))), [Clip(-3.0, -3.0)]),
    "inner low > high": (lambda b: b(Clip(-2.0, 2.0), b(Clip(3.0, 1.0), x(b))), [Clip(1.0, 1.0)]),
    "outer low > high": (lambda b: b(Clip(3.0, 1.0), b(Clip(-2.0, 2.0), x(b))), [Clip(1.0, 1.0)]),
    "infinite upper limit": (lambda b: b(Clip(0.0, float("inf")), x(b)), [Relu()]),
    "maximum with infinity": (lambda b: b(Max(), x(b), f32(np.inf)), [Clip(float("inf"), None)]),
    "integers": (lambda b: b(Min(), b(Max(), b.x(9, element="int32"), np.int32(3)), np.int32(50)), [Clip(3, 50)]),
    "non-negative integers": (lambda b: b(Max(), b.x(9, element="int64"), np.int64(0)), [Clip(0, None)]),
    "four limits": (
        lambda b: b(Clip(None, 2.0), b(Max(), b(Min(), b(Clip(-5.0, 5.0), x(b)), f32(3)), f32(-3))),
        [Clip(-3.0, 2.0)],
    ),
}


@pytest.mark.parametrize(("make", "expected"), MERGED.values(), ids=MERGED)
def test_merged(make, expected):
    operators = [node.operator for node in apply(make, PASS).nodes.values()]
    assert list(map(repr, operators)) == list(map(repr, expected))


STAYS = {
    "different elements": lambda b: b(Max(), x(b), np.array([1, 2, 3, 4], f32)),
    "a constant that broadcasts x": lambda b: b(Max(), b.x("n", 1), np.zeros((1, 4), f32)),
    "NaN": lambda b: b(Max(), x(b), f32(np.nan)),
    "not a constant": lambda b: b(Max(), x(b), b.x("n", 4, name="z")),
    "clip": lambda b: b(Clip(-1.0, 1.0), x(b)),
    "clip of a value with other uses": lambda b: (b(Clip(0.0, 1.0), (y := b(Relu(), x(b)))), b(Tanh(), y)),
    "clip of an output": lambda b: (b(Clip(0.0, 1.0), (y := b(Relu(), x(b)))), y),
    "a limit of NaN": lambda b: b(Clip(float("nan"), 1.0), b(Relu(), x(b))),
}


test_stays = stays(PASS, STAYS)


def make(b):
    low = b(Max(), b.x("n", 4), b.constant(f32(0), "zero"), name="low")
    return b(Min(), low, b.constant(f32(6), "six"), name="high")


test_golden = example(PASS, make)
