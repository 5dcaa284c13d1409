"""Removal of redundant conversions between integers and float."""

import numpy as np
import pytest

from mlhood.compiler.hir import Quantization
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from tests.compiler.passes.building import apply, built, example, kinds, stays

PASS = "clean_quantization"
Q, OTHER = Quantization((0.1,), (3,)), Quantization((0.2,), (3,))
ROWS = Quantization((0.1, 0.3), (3, -3), 1)


def round_trip(b, element, first, second=None, other=None):
    q = b(Quantize(element, first), b.x("n", 2))
    q = b(Quantize(other or element, second or first), b(Dequantize(), q))
    return b(Dequantize(), q)


@pytest.mark.parametrize("element", ["int8", "int16", "uint8", "uint16"])
@pytest.mark.parametrize("quantization", [Q, Quantization((1e-3,), (0,))], ids=["offset", "symmetric"])
def test_the_same_parameters(element, quantization):
    graph = apply(lambda b: round_trip(b, element, quantization), PASS)
    assert kinds(graph) == ["Quantize", "Dequantize"]


def test_the_same_parameters_along_an_axis():
    assert kinds(apply(lambda b: round_trip(b, "int8", ROWS), PASS)) == ["Quantize", "Dequantize"]


@pytest.mark.parametrize("element", ["int8", "uint8", "int16", "uint16"])
def test_every_integer_survives_the_round_trip(element):
    """The rule requires that (q - offset) * scale / scale equals q - offset in float32."""
    limits = np.iinfo(element)
    q = np.arange(limits.min, limits.max + 1).astype(element)
    for scale in (0.1, 1 / 3, 1e-6, 7.7e4):
        b_type = built(lambda b, s=scale: round_trip(b, element, Quantization((s,), (0,)))).value("quantize").type
        real = Dequantize().evaluate_typed((b_type,), q)
        np.testing.assert_array_equal(Quantize(element, b_type.quantization).evaluate(real), q)


STAYS = {
    "another scale": lambda b: round_trip(b, "int8", Q, OTHER),
    "another type": lambda b: round_trip(b, "int8", Q, other="uint8"),
    "thirty-two bits": lambda b: round_trip(b, "int32", Q),
    "an operator between": lambda b: b(
        Quantize("int8", Q), b(Relu(), b(Dequantize(), b(Quantize("int8", Q), b.x("n", 2))))
    ),
    "float to integers and back": lambda b: b(Dequantize(), b(Quantize("int8", Q), b.x("n", 2))),
}


test_stays = stays(PASS, STAYS)


def test_a_dequantize_with_other_uses_stays():
    def make(b):
        real = b(Dequantize(), b(Quantize("int8", Q), b.x("n", 2)))
        return b(Dequantize(), b(Quantize("int8", Q), real)), b(Relu(), real)

    assert sorted(kinds(apply(make, PASS))) == ["Dequantize", "Dequantize", "Quantize", "Relu"]


def make(b):
    q = b(Quantize("int8", Q), b.x("n", 2, 2), name="q")
    again = b(Quantize("int8", Q), b(Dequantize(), q, name="real"), name="again")
    return b(Dequantize(), b(Transpose((0, 2, 1)), again, name="turned"), name="y")


test_golden = example(PASS, make)
