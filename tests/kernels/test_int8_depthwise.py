"""Depthwise convolutions of bytes give the integers of the compiler's operator."""

import numpy as np
import pytest

from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.compiler.operators.integer import QuantizedConv
from mlhood.compiler.operators.rescale import parameters_of
from mlhood.kernels import int8_depthwise
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.requantize import Requantization
from mlhood.kernels.codegen.target import AARCH64
from mlhood.kernels.geometry import geometry
from mlhood.kernels.int8_depthwise import prepare_depthwise
from mlhood.kernels.int8_weights import Int8Weights
from tests.kernels.quantized import extreme_bytes, product_scale, quantization, rescaling_of, run_guarded, term


@pytest.mark.parametrize(
    ("shape", "kernel", "stride", "padding", "dilation"),
    [
        ((2, 24, 9, 8), (3, 3), 1, 1, 1),
        ((1, 32, 10, 7), (3, 3), 2, (1, 0, 0, 2), 1),
        ((1, 16, 9, 9), (5, 2), 1, 2, (1, 2)),
        ((1, 5, 1, 3), (1, 1), 1, 0, 1),
    ],
)
@pytest.mark.parametrize(
    ("element", "schema", "values", "activation", "residual"),
    [
        ("int8", "asymmetric", "random", ("Clip", 0.0, 6.0), False),
        ("uint8", "asymmetric", "random_extremes", (), True),
        ("int8", "symmetric", "least", (), False),
    ],
)
def test_a_depthwise_convolution_is_the_operators(
    target, shape, kernel, stride, padding, dilation, element, schema, values, activation, residual
):
    rng = np.random.default_rng(shape[1])
    channels = shape[1]
    w_shape = (channels, 1, *kernel)
    g = geometry(shape, w_shape, stride, padding, dilation, channels)
    x_type = TensorType(element, shape, quantization(rng, element, schema, 0.02))
    scales = tuple(float(scale) for scale in rng.uniform(0.001, 0.02, channels))
    zero_points = tuple(int(z) for z in rng.integers(0, 100, channels))
    w_type = TensorType(element, w_shape, Quantization(scales, zero_points, 0))
    of_y = quantization(rng, element, schema, 0.05)
    z_type = TensorType(element, g.out_shape, quantization(rng, element, schema, 0.05))
    x, w = extreme_bytes(rng, shape, element, values), extreme_bytes(rng, w_shape, element, values)
    z, bias = extreme_bytes(rng, g.out_shape, element, "random"), rng.integers(-3000, 3000, channels).astype(np.int32)
    operator = QuantizedConv(g.stride, g.padding, g.dilation, channels, of_y, activation, "shift")
    types = (x_type, w_type, TensorType("int32", (channels,)), *((z_type,) if residual else ()))
    expected = operator.evaluate_typed(types, x, w, bias, *((z,) if residual else ()))

    terms = [(product_scale(x_type, w_type), 31), *([term(z_type)] if residual else [])]
    rescaling = rescaling_of(terms, TensorType(element, (), of_y), activation, z_type)
    weights = Int8Weights(w, np.array(zero_points), parameters_of(x_type).offset[0], bias)
    call = prepare_depthwise(g, weights, rescaling, threads=2, target=target)
    inputs = {"source": to_blocked(x, 16)} | ({"residual": to_blocked(z, 16)} if residual else {})
    for threads in (1, 2):
        out = run_guarded(call, threads, inputs, to_blocked(np.zeros(g.out_shape, element), 16))
        assert np.array_equal(to_plain(out, channels), expected)


def test_the_code_for_arm_is_assembled():
    text = jit.compile_ir(int8_depthwise.build(AARCH64, 4, Requantization(True)), AARCH64, assembly=True)
    assert text.count("smlal") >= 16
