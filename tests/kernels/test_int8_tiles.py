"""Layers through tiles give the integers of the compiler's operators, on the processor and emulated."""

import numpy as np
import pytest

from mlhood.kernels import int8_tiles
from mlhood.kernels.codegen import amx_conv_kernel, jit
from mlhood.kernels.codegen.requantize import Requantization
from mlhood.kernels.codegen.target import Target, available
from mlhood.kernels.int8_conv import prepare_conv
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.requantize import Rescaling
from tests.kernels import tile_emulation
from tests.kernels.quantized import quantized_conv, run_guarded

AMX = Target(
    "amx",
    "x86_64-unknown-linux-gnu",
    "sapphirerapids",
    "",
    lanes=16,
    registers=32,
    masked=True,
    dot=True,
    tiles=True,
)
WITH_TILES = next((target for target in available() if target.tiles), None)

# x, filters, kernel, stride, padding, dilation, groups
GEOMETRIES = {
    "pointwise": ((2, 80, 5, 9), 40, (1, 1), 1, 0, 1, 1),
    "pointwise, strided": ((1, 64, 9, 8), 16, (1, 1), 2, 0, 1, 1),
    "pointwise, padded": ((1, 16, 4, 5), 33, (1, 1), (2, 1), 1, 1, 1),
    "3x3": ((2, 64, 9, 7), 48, (3, 3), 1, 1, 1, 1),
    "3x3, many channels": ((1, 130, 7, 7), 17, (3, 3), 1, 1, 1, 1),
    "3x3, strided": ((2, 32, 15, 12), 32, (3, 3), 2, 1, 1, 1),
    "3x3, strides 3 and 2": ((1, 24, 14, 11), 20, (3, 3), (3, 2), (2, 1, 0, 2), 1, 1),
    "stem": ((1, 3, 23, 20), 20, (7, 7), 2, 3, 1, 1),
    "one channel": ((2, 1, 13, 12), 6, (5, 5), 1, 0, 1, 1),
    "dilated": ((1, 16, 11, 12), 16, (3, 2), (1, 2), (2, 1, 0, 3), (2, 3), 1),
    "groups of 32": ((1, 64, 5, 6), 64, (3, 3), 1, 1, 1, 2),
    "groups of 48": ((2, 96, 6, 5), 96, (3, 3), 2, 1, 1, 2),
    "one pixel": ((1, 33, 1, 1), 17, (1, 1), 1, 0, 1, 1),
    "wide": ((1, 16, 2, 70), 16, (1, 5), 1, (0, 2), 1, 1),
}
FLAVOURS = [
    # element, schema, weights by channel, values, activation, residual, rescale
    ("int8", "symmetric", True, "random", ("Relu",), True, "shift"),
    ("uint8", "asymmetric", True, "random_extremes", ("Clip", -1.0, 2.5), False, "shift"),
    ("int8", "asymmetric", True, "random_extremes", ("LeakyRelu", 0.3), True, "shift"),
    ("uint8", "asymmetric", True, "random", (), False, "real"),
    ("int8", "symmetric", False, "least", (), False, "shift"),
]
# each geometry with two flavours, each flavour with several geometries
CASES = [(name, FLAVOURS[(i + j) % len(FLAVOURS)]) for i, name in enumerate(GEOMETRIES) for j in (0, 2)]


@pytest.fixture(params=["processor", "emulated"])
def tiles(request, monkeypatch):
    """Return the target, and the numbers of threads to run with."""
    if request.param == "emulated":
        monkeypatch.setattr(int8_tiles.jit, "load", tile_emulation.load)
        return AMX, [1]
    if WITH_TILES is None:
        pytest.skip("this processor has no tiles, or the system does not permit them")
    return WITH_TILES, [1, 2]


@pytest.mark.parametrize(("name", "flavour"), CASES, ids=lambda part: part if isinstance(part, str) else part[0])
def test_a_convolution_is_the_operators(tiles, name, flavour):
    target, thread_counts = tiles
    layer = quantized_conv(GEOMETRIES[name], *flavour, w_element="int8")
    for threads in thread_counts:
        call = int8_tiles.prepare_conv(
            layer.g, layer.weights, layer.rescaling, layer.layout, threads=threads, target=target
        )
        layer.check(call, threads)


@pytest.mark.parametrize("signed", [True, False])
@pytest.mark.parametrize(("rows", "depth", "filters"), [(1, 70, 37), (33, 64, 16), (40, 130, 100), (65, 5, 3)])
def test_a_dense_layer_is_exact_and_its_sums_wrap_around(tiles, rows, depth, filters, signed):
    target, thread_counts = tiles
    rng, kind = np.random.default_rng(rows), np.int8 if signed else np.uint8
    limits = np.iinfo(kind)
    x = rng.integers(limits.min, limits.max + 1, (rows, depth)).astype(kind)
    x[0] = limits.max
    w = rng.integers(-128, 128, (filters, depth)).astype(np.int8)
    w[0] = -128
    bias = rng.choice([2**31 - 9000, -(2**31) + 9000, 7], filters).astype(np.int32)
    zero_point, scale = 17, rng.uniform(1e-9, 5e-8, filters)
    sums = ((x.astype(np.int64) - zero_point) @ w.T.astype(np.int64) + bias).astype(np.int32)
    expected = np.clip(np.rint(sums * scale) + 3, limits.min, limits.max)
    rescaling = Rescaling(np.dtype(kind).name, 3, scale=scale)
    for threads in thread_counts:
        weights = Int8Weights(w, 0, zero_point, bias)
        call = int8_tiles.prepare_dense(rows, weights, rescaling, threads=threads, target=target)
        assert np.array_equal(run_guarded(call, threads, {"source": x}, np.zeros((rows, filters), kind)), expected)


def test_weights_that_are_no_bytes_are_left_to_vectors():
    layer = quantized_conv(GEOMETRIES["3x3"], "int8", "symmetric", True, "random")
    assert int8_tiles.conv_is_faster(layer.g, layer.weights, "blocked")
    wide = Int8Weights(layer.weights.w, 100)
    assert not int8_tiles.conv_is_faster(layer.g, wide, "blocked")


def test_a_few_rows_are_left_to_vectors():
    weights = Int8Weights(np.ones((64, 64), np.int8))
    assert int8_tiles.dense_is_faster(32, weights)
    assert not int8_tiles.dense_is_faster(1, weights)


@pytest.mark.skipif(WITH_TILES is None, reason="this processor has no tiles")
def test_a_layer_goes_through_tiles_where_they_are_faster():
    layer = quantized_conv(GEOMETRIES["3x3"], "int8", "symmetric", True, "random")
    call = prepare_conv(layer.g, layer.weights, layer.rescaling, target=WITH_TILES)
    assert "tiles" in call.name
    layer.check(call, 1)


@pytest.mark.parametrize(("signed", "instruction"), [(True, "tdpbssd"), (False, "tdpbusd")])
def test_the_code_is_assembled_on_every_machine(signed, instruction):
    variant = amx_conv_kernel.AmxVariant(2, "blocked", Requantization(signed))
    text = jit.compile_ir(amx_conv_kernel.build(AMX, variant), AMX, assembly=True)
    assert text.count(instruction) == 4
    assert text.count("ldtilecfg") == text.count("tilerelease") == 1
