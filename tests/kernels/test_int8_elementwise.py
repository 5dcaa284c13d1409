"""Element-wise functions and pooling of bytes give the integers of the compiler's operators."""

import numpy as np
import pytest

from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.compiler.operators.fixed_point import fixed_points
from mlhood.compiler.operators.integer_elementwise import (
    Lookup,
    QuantizedAdd,
    QuantizedAveragePool,
    QuantizedGlobalAveragePool,
)
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale, bit_width, max_magnitude, parameters_of
from mlhood.kernels import int8_flat, int8_pool
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.requantize import Requantization
from mlhood.kernels.codegen.target import AARCH64
from mlhood.kernels.int8_flat import prepare_dequantize, prepare_lookup, prepare_quantize, prepare_rescale
from mlhood.kernels.int8_pool import prepare_max_pool, prepare_sum_pool
from mlhood.kernels.requantize import Rescaling, Shifts
from mlhood.kernels.windows import Windows
from tests.kernels.quantized import extreme_bytes, quantization, rescaling_of, run_guarded, term

SCHEMAS = [("int8", "asymmetric"), ("uint8", "asymmetric"), ("int8", "power_of_two"), ("int8", "symmetric_unsigned")]
ALL_PAIRS = np.stack(np.meshgrid(np.arange(256), np.arange(256))).reshape(2, -1)[:, :65533]  # not a whole block


def all_bytes(element: str) -> np.ndarray:
    return (ALL_PAIRS + np.iinfo(element).min).astype(element)


@pytest.mark.parametrize(("element", "schema"), SCHEMAS)
@pytest.mark.parametrize(("scale", "activation"), [(0.05, ("Relu",)), (0.0005, ()), (40.0, ("LeakyRelu", 0.1))])
def test_a_sum_of_all_pairs_of_bytes_is_the_operators(target, element, schema, scale, activation):
    rng = np.random.default_rng(1)
    a, b = all_bytes(element)
    types = [TensorType(element, a.shape, quantization(rng, element, schema, s)) for s in (0.05, 0.03)]
    of_y = quantization(rng, element, schema, scale)
    y_type = TensorType(element, a.shape, of_y)
    rescaling = rescaling_of([term(type) for type in types], y_type, activation, types[1])
    for operator, inputs in ((QuantizedAdd(of_y, activation), (a, b)), (Rescale(of_y, activation), (a,))):
        expected = operator.evaluate_typed(tuple(types[: len(inputs)]), *inputs)
        if len(inputs) == 1:
            rescaling = rescaling_of([term(types[0])], y_type, activation)
        rescaling = Rescaling(**{**vars(rescaling), "bound": 255})
        call = prepare_rescale(a.size, parameters_of(types[0]).offset[0], rescaling, threads=2, target=target)
        out = run_guarded(call, 2, dict(zip(("x", "residual"), inputs, strict=False)), np.empty_like(a))
        assert np.array_equal(out, expected)


@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_a_lookup_is_the_operators(target, element):
    rng = np.random.default_rng(2)
    x = extreme_bytes(rng, (1000,), element, "random")
    type = TensorType(element, x.shape, quantization(rng, element, "asymmetric", 0.05))
    operator = Lookup(("Sigmoid",), quantization(rng, element, "asymmetric", 1 / 255))
    call = prepare_lookup(x.size, operator.table(type), target=target)
    assert np.array_equal(run_guarded(call, 1, {"x": x}, x), operator.evaluate_typed((type,), x))


@pytest.mark.parametrize(("element", "offset"), [("int8", -128), ("int8", 3), ("uint8", 255), ("uint8", 0)])
def test_conversions_are_the_operators(target, element, offset):
    rng = np.random.default_rng(offset + 128)
    scale = float(np.float32(0.037))
    ties = (np.arange(-600, 601) / 2).astype(np.float32)
    x = np.concatenate([rng.normal(0, 4, 1000), ties * scale, [np.inf, -np.inf, 3e36, -1e-40]]).astype(np.float32)
    of_y = Quantization((scale,), (offset,))
    expected = Quantize(element, of_y).evaluate(x)
    call = prepare_quantize(x.size, scale, offset, element, target=target)
    stored = run_guarded(call, 1, {"x": x}, np.zeros(x.shape, element))
    assert np.array_equal(stored, expected)
    assert len(np.unique(stored)) > 100
    reals = Dequantize().evaluate_typed((TensorType(element, x.shape, of_y),), stored)
    call = prepare_dequantize(x.size, scale, offset, element, target=target)
    assert np.array_equal(run_guarded(call, 1, {"x": stored}, x), reals)


POOLS = [
    ((1, 24, 9, 8), (3, 3), (2, 2), (1, 1, 1, 1), (1, 1), False),
    ((2, 16, 7, 10), (2, 3), (1, 2), (0, 1, 1, 0), (2, 1), False),
    ((1, 5, 6, 7), (3, 2), (2, 3), (0, 0, 0, 1), (1, 1), True),
]


@pytest.mark.parametrize(("shape", "kernel", "strides", "pads", "dilations", "ceil"), POOLS)
@pytest.mark.parametrize("element", ["int8", "uint8"])
def test_pooling_is_the_operators(target, shape, kernel, strides, pads, dilations, ceil, element):
    rng = np.random.default_rng(3)
    x = extreme_bytes(rng, shape, element, "random")
    window = {"kernel": kernel, "strides": strides, "pads": pads, "dilations": dilations, "ceil": ceil}
    expected = MaxPool(**window).evaluate(x)
    planes = shape[0] * -(-shape[1] // 16)
    over = Windows(planes, shape[2:], expected.shape[2:], kernel, strides, dilations, pads)
    like, inputs = to_blocked(np.zeros(expected.shape, element), 16), {"x": to_blocked(x, 16)}
    out = run_guarded(prepare_max_pool(over, element, target=target), 2, inputs, like)
    assert np.array_equal(to_plain(out, shape[1]), expected)

    type = TensorType(element, shape, quantization(rng, element, "asymmetric", 0.02))
    of_y = quantization(rng, element, "asymmetric", 0.01)
    for count_pads in (False, True):
        operator = QuantizedAveragePool(**window, count_pads=count_pads, quantization=of_y)
        expected = operator.evaluate_typed((type,), x)
        ones = np.ones((1, 1, *shape[2:]), np.int64)
        counts = operator.window.view(ones, 0, inner=1 if count_pads else 0).sum(axis=(4, 5))[0, 0]
        rescalings = mean_rescalings(type, TensorType(element, (), of_y), range(kernel[0] * kernel[1] + 1))
        call = prepare_sum_pool(over, parameters_of(type).offset[0], rescalings, counts, target=target)
        assert np.array_equal(to_plain(run_guarded(call, 2, inputs, like), shape[1]), expected)


def mean_rescalings(x: TensorType, y: TensorType, counts: range) -> dict[int, Rescaling]:
    """Return the rescaling of sums of `counts` elements, the last of which is the most."""
    bound = counts[-1] * max_magnitude(x)
    found = {}
    for count in counts:
        scale = np.array(parameters_of(x).scale[0] / max(count, 1) / parameters_of(y).scale[0])
        shifts = Shifts(*fixed_points([scale], [bit_width(bound)]))
        found[count] = Rescaling(y.element, parameters_of(y).offset[0], shifts, bound=bound)
    return found


@pytest.mark.parametrize("values", ["random", "most"])
def test_a_global_average_is_the_operators(target, values):
    rng = np.random.default_rng(4)
    shape = (2, 40, 7, 7)
    x = extreme_bytes(rng, shape, "uint8", values)
    type = TensorType("uint8", shape, quantization(rng, "uint8", "symmetric_unsigned", 0.02))
    of_y = quantization(rng, "uint8", "asymmetric", 0.02)
    expected = QuantizedGlobalAveragePool(of_y).evaluate_typed((type,), x)
    rescalings = mean_rescalings(type, TensorType("uint8", (), of_y), range(49, 50))
    over = Windows(6, (7, 7), (1, 1), (7, 7), (1, 1), (1, 1), (0, 0, 0, 0))
    call = prepare_sum_pool(over, 0, rescalings, np.array([[49]]), target=target)
    out = run_guarded(call, 2, {"x": to_blocked(x, 16)}, to_blocked(np.zeros(expected.shape, np.uint8), 16))
    assert np.array_equal(to_plain(out, 40), expected)


def test_the_code_for_arm_is_assembled():
    kind = Requantization(True)
    for text in (
        int8_flat.build(AARCH64, "quantize", kind),
        int8_pool.build(AARCH64, kind, largest=True),
    ):
        assert "ret" in jit.compile_ir(text, AARCH64, assembly=True)
