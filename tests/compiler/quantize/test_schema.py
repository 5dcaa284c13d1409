"""The four schemas: Glow's formulas on known ranges, and properties for any range."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.hir import Quantization, TensorType
from mlhood.compiler.quantize.schema import (
    QUANTIZED_ELEMENTS,
    SCHEMAS,
    channel_parameters,
    choose_parameters,
    dequantize_array,
    quantize_array,
    tensor_parameters,
)
from mlhood.errors import CompilerError

FEW = settings(max_examples=150)
numbers = st.floats(-(2.0**100), 2.0**100, width=32)
ranges = st.tuples(numbers, numbers).map(sorted)
schemas, elements = st.sampled_from(SCHEMAS), st.sampled_from(QUANTIZED_ELEMENTS)


@pytest.mark.parametrize(
    ("low", "high", "element", "schema", "scale", "offset"),
    [
        (-1.0, 3.0, "int8", "asymmetric", 4 / 255, -64),
        (-1.0, 3.0, "int16", "asymmetric", 4 / 65535, -16384),
        (-1.0, 3.0, "uint8", "asymmetric", 4 / 255, 64),
        (0.0, 6.0, "int8", "asymmetric", 6 / 255, -128),
        (-6.0, 0.0, "int8", "asymmetric", 6 / 255, 127),
        (2.0, 6.0, "int8", "asymmetric", 6 / 255, -128),  # widened to include 0
        (-6.0, -2.0, "int8", "asymmetric", 6 / 255, 127),
        (-1.0, 3.0, "int8", "symmetric", 3 / 127, 0),
        (-3.0, 1.0, "int8", "symmetric", 3 / 128, 0),
        (-3.0, 1.0, "int16", "symmetric", 3 / 32768, 0),
        (-1.0, 3.0, "uint8", "symmetric", 3 / 127, 128),
        (0.0, 3.0, "int8", "symmetric", 3 / 127, 0),
        (0.0, 3.0, "int8", "symmetric_unsigned", 3 / 255, -128),
        (1.0, 3.0, "int16", "symmetric_unsigned", 3 / 65535, -32768),
        (0.0, 3.0, "uint8", "symmetric_unsigned", 3 / 255, 0),
        (-0.1, 3.0, "int8", "symmetric_unsigned", 3 / 127, 0),
        (-1.0, 3.0, "int8", "power_of_two", 2.0**-5, 0),  # 3 / 127 = 0.0236
        (0.0, 127.0, "int8", "power_of_two", 1.0, 0),
        (0.0, 127.5, "int8", "power_of_two", 2.0, 0),
        (-128.0, 127.0, "int8", "power_of_two", 1.0, 0),
        (0.0, 0.0, "int8", "asymmetric", 0.1, 0),
        (-1.0, 1.0, "int8", "asymmetric", 2 / 255, 0),
        (-1.0, 1.0, "uint8", "asymmetric", 2 / 255, 128),
        (0.0, 1e-8, "int8", "asymmetric", 1e-8 / 255, -128),
        (0.0, 0.0, "int8", "symmetric", 0.1, 0),
        (0.0, 0.0, "int8", "power_of_two", 0.125, 0),
        (5.0, 5.0, "int8", "asymmetric", 5 / 255, -128),
    ],
)
def test_known_ranges(low, high, element, schema, scale, offset):
    got = choose_parameters(low, high, element, schema)
    assert got == (pytest.approx(scale, rel=1e-6), offset)
    assert got[0] == np.float32(got[0])


@FEW
@given(limits=ranges, schema=schemas, element=elements)
def test_parameters_are_always_valid(limits, schema, element):
    scale, offset = choose_parameters(*limits, element, schema)
    assert TensorType(element, (1,), Quantization((scale,), (offset,))).violations() == []
    centre = 128 if element == "uint8" else 0
    if schema in ("symmetric", "power_of_two"):
        assert offset == centre
    if schema == "power_of_two":
        assert math.frexp(scale)[0] == 0.5


@FEW
@given(limits=ranges, schema=schemas, element=elements, share=st.floats(0, 1))
def test_the_round_trip_error_is_half_a_step_within_the_range(limits, schema, element, share):
    scale, offset = choose_parameters(*limits, element, schema)
    parameters = Quantization((scale,), (offset,))
    x = np.array(limits[0] + share * (limits[1] - limits[0]))
    result = dequantize_array(quantize_array(x, parameters, element), parameters)
    steps = 1.0 if schema == "asymmetric" else 0.5  # rounding the offset moves the ends by up to half a step
    assert abs(result - x) <= steps * scale * (1 + 1e-5) + 1e-40
    # zero is exact, and the order is preserved
    zero, smaller, larger = quantize_array(np.array([0.0, *sorted([float(x), 0.7 * float(x)])]), parameters, element)
    assert zero == offset
    assert smaller <= larger


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize("limits", [(0.0, 1e-45), (-1e-45, 1e-45), (-3.4e38, 3.4e38), (-3.4e38, 0.0), (1e-38, 1e-38)])
def test_extreme_ranges(schema, limits):
    for element in QUANTIZED_ELEMENTS:
        scale, offset = choose_parameters(*limits, element, schema)
        assert TensorType(element, (1,), Quantization((scale,), (offset,))).violations() == []
        assert np.float32(scale) >= np.finfo(np.float32).tiny


@pytest.mark.parametrize("limits", [(1.0, 0.0), (math.nan, 1.0), (0.0, math.inf), (-math.inf, 0.0)])
def test_invalid_ranges(limits):
    with pytest.raises(CompilerError, match="invalid range"):
        choose_parameters(*limits)


def test_unknown_names():
    with pytest.raises(CompilerError, match="unknown schema"):
        choose_parameters(0, 1, schema="lopsided")
    with pytest.raises(CompilerError, match="unsupported quantised element type"):
        choose_parameters(0, 1, "int4")


def test_one_scale_per_channel():
    weight = np.array([[1.0, -2.0], [0.5, 0.25], [0.0, 0.0]])
    parameters = channel_parameters(weight)
    assert parameters.axis == 0
    assert parameters.scale == pytest.approx((2 / 128, 0.5 / 127, 0.1))
    assert parameters.offset == (0, 0, 0)
    stored = quantize_array(weight, parameters, "int8")
    np.testing.assert_array_equal(stored, [[64, -128], [127, 64], [0, 0]])
    np.testing.assert_allclose(dequantize_array(stored, parameters), weight, atol=0.002)


def test_an_empty_array():
    assert tensor_parameters(np.zeros((0, 3))) == Quantization((np.float32(0.1).item(),), (0,))
