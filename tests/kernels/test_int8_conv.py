"""Convolutions and dense layers of bytes give the integers of the compiler's operators, to the last bit."""

import numpy as np
import pytest

from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.compiler.operators.integer import QuantizedFullyConnected
from mlhood.compiler.operators.rescale import parameters_of
from mlhood.errors import KernelError
from mlhood.kernels.codegen import int8_conv_kernel, jit
from mlhood.kernels.codegen.requantize import Requantization
from mlhood.kernels.codegen.target import AARCH64, Target
from mlhood.kernels.geometry import geometry
from mlhood.kernels.int8_conv import prepare_conv, prepare_dense
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.requantize import Rescaling, Shifts
from tests.kernels.quantized import (
    extreme_bytes,
    product_scale,
    quantization,
    quantized_conv,
    rescaling_of,
    run_guarded,
    weight_type,
)

VNNI = Target("avx512", "x86_64-unknown-linux-gnu", "cascadelake", "", lanes=16, registers=32, masked=True, dot=True)

# x, filters, kernel, stride, padding, dilation, groups
GEOMETRIES = {
    "pointwise": ((2, 40, 5, 7), 24, (1, 1), 1, 0, 1, 1),
    "3x3": ((1, 32, 9, 6), 48, (3, 3), 1, 1, 1, 1),
    "strided": ((1, 24, 8, 9), 16, (1, 1), 2, 0, 1, 1),
    "stem": ((1, 3, 23, 20), 20, (7, 7), 2, 3, 1, 1),
    "dilated": ((1, 16, 9, 9), 16, (3, 2), (1, 2), (2, 1, 0, 3), (2, 3), 1),
    "groups": ((1, 32, 5, 5), 64, (3, 3), 1, 1, 1, 2),
    "one pixel": ((1, 33, 1, 1), 17, (1, 1), 1, 0, 1, 1),
}
CASES = [
    # geometry, element, schema, weights by channel, values, activation, residual, rescale
    ("pointwise", "int8", "asymmetric", True, "random", (), False, "shift"),
    ("pointwise", "uint8", "asymmetric", False, "most", (), False, "real"),
    ("3x3", "int8", "symmetric", True, "random", ("Relu",), True, "shift"),
    ("3x3", "uint8", "asymmetric", True, "random_extremes", (), True, "shift"),
    ("strided", "int8", "symmetric_unsigned", True, "random", ("Clip", -1.0, 2.5), False, "shift"),
    ("stem", "uint8", "asymmetric", True, "random", (), False, "shift"),
    ("stem", "int8", "power_of_two", False, "random_extremes", (), False, "shift"),
    ("dilated", "int8", "asymmetric", False, "least", ("LeakyRelu", 0.1), False, "shift"),
    ("dilated", "int8", "asymmetric", True, "random", ("LeakyRelu", 0.3), True, "shift"),
    ("groups", "int8", "asymmetric", True, "random", (), False, "real"),
    ("one pixel", "uint8", "symmetric", True, "random", (), True, "shift"),
]


@pytest.mark.parametrize("threads", [1, 2])
@pytest.mark.parametrize("case", CASES, ids=lambda case: "-".join(map(str, case[:5])))
def test_a_convolution_is_the_operators(target, case, threads):
    name, *rest = case
    layer = quantized_conv(GEOMETRIES[name], *rest)
    call = prepare_conv(layer.g, layer.weights, layer.rescaling, layer.layout, threads=threads, target=target)
    layer.check(call, threads)


@pytest.mark.parametrize(("rows", "depth", "filters"), [(1, 70, 37), (5, 33, 16), (13, 128, 40)])
@pytest.mark.parametrize(("element", "schema"), [("int8", "asymmetric"), ("uint8", "symmetric")])
def test_a_dense_layer_is_the_operators(target, rows, depth, filters, element, schema):
    rng = np.random.default_rng(rows)
    x_type = TensorType(element, (rows, depth), quantization(rng, element, schema, 0.02))
    w_type = weight_type(rng, element, (filters, depth), schema, schema == "symmetric", 0.01)
    of_y = quantization(rng, element, schema, 0.2)
    x, w = (extreme_bytes(rng, shape, element, "random") for shape in ((rows, depth), (filters, depth)))
    bias = rng.integers(-3000, 3000, filters).astype(np.int32)
    types = (x_type, w_type, TensorType("int32", (filters,)))
    expected = QuantizedFullyConnected(of_y, ("Relu",)).evaluate_typed(types, x, w, bias)
    rescaling = rescaling_of([(product_scale(x_type, w_type), 31)], TensorType(element, (), of_y), ("Relu",))
    weights = Int8Weights(w, np.array(parameters_of(w_type).offset), parameters_of(x_type).offset[0], bias)
    call = prepare_dense(rows, weights, rescaling, threads=2, target=target)
    out = run_guarded(call, 2, {"source": x}, np.zeros((rows, filters), element))
    assert np.array_equal(out, expected)


def test_a_product_with_constants(target):
    rng = np.random.default_rng(5)
    of_a = quantization(rng, "uint8", "asymmetric", 0.02)
    columns = Quantization(tuple(rng.uniform(0.001, 0.02, 21).tolist()), tuple(range(90, 111)), 1)
    of_y = quantization(rng, "uint8", "asymmetric", 0.3)
    a, b = extreme_bytes(rng, (9, 45), "uint8", "random"), extreme_bytes(rng, (45, 21), "uint8", "random_extremes")
    scale = np.array(columns.scale) * of_a.scale[0] / of_y.scale[0]
    products = (a.astype(np.int64) - of_a.offset[0]) @ (b.astype(np.int64) - columns.offset)
    expected = np.clip(np.rint(products * scale) + of_y.offset[0], 0, 255).astype(np.uint8)
    weights = Int8Weights(np.ascontiguousarray(b.T), np.array(columns.offset), of_a.offset[0])
    call = prepare_dense(9, weights, Rescaling("uint8", of_y.offset[0], scale=scale), target=target)
    assert np.array_equal(run_guarded(call, 1, {"source": a}, np.zeros((9, 21), np.uint8)), expected)


def test_weights_of_zero_leave_the_bias(target):
    weights = Int8Weights(np.zeros((17, 20), np.int8), bias=np.arange(17, dtype=np.int32))
    call = prepare_dense(2, weights, Rescaling("int8", 1, scale=np.ones(17)), target=target)
    out = run_guarded(call, 1, {"source": np.ones((2, 20), np.int8)}, np.zeros((2, 17), np.int8))
    assert np.array_equal(out, np.tile(np.arange(1, 18), (2, 1)))


@pytest.mark.parametrize(("low", "high"), [(0, 127), (-20, 100)])
def test_a_bounded_input_does_not_saturate(target, low, high):
    """The largest products that the bounds allow: all weights have the largest magnitude, and one sign."""
    rng = np.random.default_rng(high)
    g = geometry((1, 18, 4, 5), (16, 18, 3, 3), 1, 1)
    for byte in (low, high):
        x = np.full((1, 18, 4, 5), byte, np.int8)
        for weight in (-127, 127):
            w = np.full((16, 18, 3, 3), weight, np.int8)
            scale = rng.uniform(1e-6, 1e-4, 16)
            rescaling = Rescaling("int8", 3, scale=scale)
            call = prepare_conv(g, Int8Weights(w, 0, 0, None, (low, high)), rescaling, target=target)
            padded = np.pad(x.astype(np.int64), ((0, 0), (0, 0), (1, 1), (1, 1)))
            windows = np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (2, 3)).sum(axis=(1, 4, 5)) * weight
            expected = np.clip(np.rint(windows[:, None] * scale[:, None, None]) + 3, -128, 127)
            out = run_guarded(call, 1, {"source": to_blocked(x, 16)}, to_blocked(np.zeros(g.out_shape, np.int8), 16))
            assert np.array_equal(to_plain(out, 16), expected)


def test_large_scales_and_multipliers_are_exact(target):
    """Scales of more than one half, and a multiplier of 2^31, need products of more than 32 bits."""
    w = np.array([[1, 0], [0, 1], [-3, 2]], np.int8)
    x = np.array([[-128, 127], [1, -1], [0, 5]], np.int8)
    multipliers, shift = np.array([2**31, 2**31, 3 * 2**28]), np.array([31, 0, 30])
    accumulator = x.astype(np.int64) @ w.T.astype(np.int64)
    half = np.left_shift(1, shift) >> 1
    expected = np.clip(((accumulator * multipliers + half) >> shift) - 7, -100, 90)
    rescaling = Rescaling("int8", -7, Shifts([multipliers], shift), low=-100, high=90)
    call = prepare_dense(3, Int8Weights(w), rescaling, target=target)
    assert np.array_equal(run_guarded(call, 1, {"source": x}, np.zeros((3, 3), np.int8)), expected)


def test_a_sum_wraps_around(target):
    rng = np.random.default_rng(0)
    x, w = rng.integers(-128, 128, (2, 50)).astype(np.int8), rng.integers(-128, 128, (16, 50)).astype(np.int8)
    bias = np.full(16, 2**31 - 5000, np.int32)
    sums = (x.astype(np.int64) @ w.T.astype(np.int64) + bias).astype(np.int32)
    rescaling = Rescaling("int8", scale=np.full(16, 1e-8))
    call = prepare_dense(2, Int8Weights(w, bias=bias), rescaling, target=target)
    out = run_guarded(call, 1, {"source": x}, np.zeros((2, 16), np.int8))
    assert np.array_equal(out, np.rint(sums * 1e-8))
    assert len(np.unique(np.sign(out))) > 1


def test_groups_of_partial_blocks_are_refused():
    g = geometry((1, 24, 5, 5), (24, 12, 3, 3), groups=2)
    with pytest.raises(KernelError, match="would span two groups"):
        prepare_conv(g, Int8Weights(np.zeros((24, 12, 3, 3), np.int8)), Rescaling("int8", scale=np.ones(24)))


@pytest.mark.parametrize(
    ("target", "vectors", "quads", "instruction"), [(VNNI, 1, True, "vpdpbusd"), (AARCH64, 4, False, "smlal")]
)
def test_other_processors_code_is_assembled(target, vectors, quads, instruction):
    variant = int8_conv_kernel.Int8Variant(4, vectors, "blocked", quads, not quads, Requantization(True))
    text = jit.compile_ir(int8_conv_kernel.build(target, variant), target, assembly=True)
    assert text.count(instruction) >= 4 * vectors
