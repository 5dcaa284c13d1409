"""Merging of padding into convolution, pooling and padding."""

import numpy as np
import pytest

from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.movement import Slice
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, MaxPool
from tests.compiler.passes.building import Tanh, apply, before_and_after, built, kinds, stays

PASS = "merge_padding"
SPATIAL = (0, 0, 1, 0, 0, 0, 1, 2)  # top, left, bottom, right: 1, 0, 1, 2
NONE = (0, 0, 0, 0)


def image(b):
    return b.x("n", 2, 5, 5)


def pad(b, x, pads=SPATIAL, mode="constant", value=0.0):
    return b(Pad(pads, mode, value), x)


def maximum(kernel=(3, 3), pads=NONE, **attributes):
    return MaxPool(kernel, (2, 2), pads, attributes.pop("dilations", (1, 1)), **attributes)


def mean(kernel=(3, 3), pads=NONE, **attributes):
    return AveragePool(kernel, (2, 2), pads, attributes.pop("dilations", (1, 1)), **attributes)


MERGED = {
    "convolution": lambda b: b.conv(pad(b, image(b)), size=3),
    "convolution with pads": lambda b: b.conv(pad(b, image(b)), size=3, pads=(1, 2, 1, 2), strides=(2, 1)),
    "convolution with a dynamic height": lambda b: b.conv(pad(b, b.x("n", 2, "h", 5)), size=3),
    "convolution, more pads than window": lambda b: b.conv(pad(b, image(b)), size=1),
    "maximum of -inf": lambda b: b(maximum(), pad(b, image(b), value=-np.inf)),
    "maximum of the lowest number": lambda b: b(maximum(), pad(b, image(b), value=float(np.finfo(np.float32).min))),
    "maximum of zeros around relu": lambda b: b(maximum(pads=(1, 1, 0, 0)), pad(b, b(Relu(), image(b)))),
    "maximum of bytes": lambda b: b(maximum(), b(Pad(SPATIAL, "constant", 0), b.x("n", 2, 5, 5, element="uint8"))),
    "mean": lambda b: b(mean(), pad(b, image(b))),
    "mean that counts": lambda b: b(mean(pads=(1, 1, 1, 0), count_pads=True), pad(b, image(b))),
    "dilated mean": lambda b: b(mean((2, 2), dilations=(2, 2)), pad(b, image(b))),
    "pad": lambda b: b(Tanh(), pad(b, pad(b, image(b)), (1, 2, 0, 0, 0, 0, 0, 1))),
    "chain": lambda b: b.conv(pad(b, pad(b, pad(b, image(b)))), size=3),
}


@pytest.mark.parametrize("make", MERGED.values(), ids=MERGED)
def test_merged(make):
    graph = apply(make, PASS)
    assert kinds(graph).count("Pad") == ("Tanh" in kinds(graph))
    before = built(make)
    assert len(graph.nodes) < len(before.nodes)


STAYS = {
    "convolution of ones": lambda b: b.conv(pad(b, image(b), value=1.0), size=3),
    "convolution of a reflection": lambda b: b.conv(pad(b, image(b), mode="reflect"), size=3),
    "convolution of the edge": lambda b: b.conv(pad(b, image(b), mode="edge"), size=3),
    "channels": lambda b: b.conv(pad(b, image(b), (0, 1, 0, 0, 0, 0, 0, 0)), size=3),
    "channels, at the end": lambda b: b.conv(pad(b, image(b), (0, 0, 0, 0, 0, 1, 0, 0)), size=3),
    "batch": lambda b: b.conv(pad(b, b.x(1, 2, 5, 5), (1, 0, 0, 0, 0, 0, 0, 0)), size=3),
    "cropping": lambda b: b.conv(pad(b, image(b), (0, 0, 1, 0, 0, 0, -1, 0)), size=3),
    "cropping before padding": lambda b: b.conv(pad(b, image(b), (0, 0, 1, 0, 0, 0, -1, 0)), size=3, pads=(1,) * 4),
    "maximum of zeros": lambda b: b(maximum(), pad(b, image(b))),
    "maximum of ones around relu": lambda b: b(maximum(), pad(b, b(Relu(), image(b)), value=1.0)),
    "dilated maximum": lambda b: b(maximum((2, 2), dilations=(2, 2)), pad(b, b(Relu(), image(b)))),
    "maximum, ceil": lambda b: b(maximum(ceil=True), pad(b, b(Relu(), image(b)))),
    "maximum, pads as large as the window": lambda b: b(maximum((2, 2)), pad(b, b(Relu(), image(b)))),
    "maximum with indices": lambda b: b.graph.add(maximum(indices=True), pad(b, b(Relu(), image(b)))).outputs,
    "mean that does not count its pads": lambda b: b(mean(pads=(1, 1, 1, 0)), pad(b, image(b))),
    "mean of ones": lambda b: b(mean(), pad(b, image(b), value=1.0)),
    "mean, ceil": lambda b: b(mean((2, 2), ceil=True), pad(b, image(b), (0, 0, 1, 0, 0, 0, 0, 1))),
    "pad with another value": lambda b: pad(b, pad(b, image(b)), value=1.0),
    "pad in another mode": lambda b: pad(b, pad(b, image(b)), mode="edge"),
    "pad that crops": lambda b: pad(b, pad(b, image(b)), (0, 0, -1, 0, 0, 0, 0, 0)),
    "pad with other uses": lambda b: (pad(b, (y := pad(b, image(b)))), b(Tanh(), y)),
    "an operator between": lambda b: b.conv(b(Slice((0,), (3,), (2,), (1,)), pad(b, image(b))), size=3),
}


test_stays = stays(PASS, STAYS)


def test_a_padding_with_other_uses_is_still_merged_into_a_convolution():
    graph = apply(lambda b: (b.conv((y := pad(b, image(b))), size=3), b(Tanh(), y)), PASS)
    assert sorted(kinds(graph)) == ["Conv", "Pad", "Tanh"]
    assert graph.nodes["conv"].inputs[0].name == "x"


def test_golden(golden):
    def make(b):
        x = b(Relu(), b.conv(b(Pad(SPATIAL), b.x("n", 1, 5, 5), name="pad1"), size=1, bias=False), name="relu")
        return b(maximum(), b(Pad(SPATIAL), x, name="pad2"), name="pool")

    def plain(b):
        b.numbers = lambda *shape: np.ones(shape, np.float32)
        return make(b)

    golden("compiler/golden/passes/merge_padding.txt", before_and_after(plain, PASS))
