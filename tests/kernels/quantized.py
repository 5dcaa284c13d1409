"""What the tests of the kernels of bytes share: the compiler's operators as reference, and guarded memory."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from mlhood.compiler.backends.cpu.integer_selection import rescaling_of
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.compiler.operators.integer import QuantizedConv
from mlhood.compiler.operators.rescale import bit_width, max_magnitude, parameters_of
from mlhood.kernels import parallel
from mlhood.kernels.geometry import Geometry, Layout, geometry
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.native import NativeCall
from mlhood.kernels.requantize import Rescaling

__all__ = [
    "QuantizedLayer",
    "extreme_bytes",
    "product_scale",
    "quantization",
    "quantized_conv",
    "rescaling_of",
    "run_guarded",
    "term",
    "weight_type",
]

GUARD, CANARY = 64, 0xA5


def run_guarded(call: NativeCall, threads: int, inputs: dict[str, np.ndarray], out: np.ndarray) -> np.ndarray:
    """Run a call whose result and workspaces lie between canaries; return the result, like `out`."""
    guarded = {"out": out.nbytes, **call.workspace}
    memory = {name: np.full(size + 2 * GUARD, CANARY, np.uint8) for name, size in guarded.items()}
    words = call.words.copy()
    for name, array in inputs.items():
        assert array.flags.c_contiguous
        words[call.operands[name]] = array.ctypes.data
    for name, buffer in memory.items():
        words[call.operands[name]] = buffer.ctypes.data + GUARD
    parallel.launch(call.kernel, words, (call, inputs, memory), threads)
    for buffer in memory.values():
        assert (buffer[:GUARD] == CANARY).all()
        assert (buffer[-GUARD:] == CANARY).all()
    return memory["out"][GUARD:-GUARD].view(out.dtype).reshape(out.shape).copy()


def product_scale(x: TensorType, w: TensorType) -> np.ndarray:
    """Return the scale of the products of x and w, by filter."""
    return np.array(parameters_of(w).scale) * parameters_of(x).scale[0]


def term(type: TensorType) -> tuple[np.ndarray, int]:
    """Return the scale and the bits of a tensor with one scale."""
    return np.array(parameters_of(type).scale[0]), bit_width(max_magnitude(type))


def quantization(rng: np.random.Generator, element: str, schema: str, scale: float) -> Quantization:
    """Return parameters of a schema near a scale."""
    limits = np.iinfo(element)
    offsets = {
        "asymmetric": int(rng.integers(limits.min, limits.max + 1)),
        "symmetric_unsigned": int(limits.min),
        "symmetric": 0 if element == "int8" else 128,
    }
    offsets["power_of_two"] = offsets["symmetric"]
    number = float(np.float32(scale * rng.uniform(0.7, 1.4)))
    if schema == "power_of_two":
        number = float(2.0 ** np.round(np.log2(number)))
    return Quantization((number,), (offsets[schema],))


def extreme_bytes(rng: np.random.Generator, shape: tuple[int, ...], element: str, kind: str) -> np.ndarray:
    """Return bytes: `random`, all `least` or all `most`, or either at `random_extremes`."""
    limits = np.iinfo(element)
    if kind == "random":
        return rng.integers(limits.min, limits.max + 1, shape).astype(element)
    if kind == "random_extremes":
        return rng.choice([limits.min, limits.max], shape).astype(element)
    return np.full(shape, limits.min if kind == "least" else limits.max, element)


def weight_type(
    rng: np.random.Generator, element: str, shape: tuple[int, ...], schema: str, by_channel: bool, scale: float
) -> TensorType:
    """Return a type of weights, quantised by tensor, or symmetrically by filter."""
    if not by_channel:
        return TensorType(element, shape, quantization(rng, element, schema, scale))
    scales = tuple(float(s) for s in scale * rng.uniform(0.05, 1.5, shape[0]))
    return TensorType(element, shape, Quantization(scales, (0,) * shape[0], 0))


@dataclass(frozen=True, eq=False)
class QuantizedLayer:
    """A convolution with random operands, as kernels take it, and what the compiler's operator computes."""

    g: Geometry
    weights: Int8Weights
    rescaling: Rescaling
    layout: Layout
    inputs: dict[str, np.ndarray]
    expected: np.ndarray

    def check(self, call: NativeCall, threads: int) -> None:
        """Check that a call computes the expected bytes and writes nothing else."""
        empty = to_blocked(np.zeros(self.g.out_shape, self.expected.dtype), 16)
        out = run_guarded(call, threads, self.inputs, empty)
        np.testing.assert_array_equal(to_plain(out, self.g.filters), self.expected)


def quantized_conv(
    sizes: Sequence[Any],
    element: str,
    schema: str,
    by_channel: bool,
    values: str,
    activation: tuple[Any, ...] = (),
    residual: bool = False,
    rescale: Any = "shift",
    w_element: str | None = None,
) -> QuantizedLayer:
    """Return a convolution of the sizes (x, filters, kernel, stride, padding, dilation, groups).

    Args:
        sizes: As `geometry` takes them; the layout is blocked from 16 channels on.
        element: `int8` or `uint8`, of x and result.
        schema: See `quantization`.
        by_channel: See `weight_type`.
        values: See `extreme_bytes`.
        activation: None, Relu, Clip or LeakyRelu.
        residual: Whether a tensor is added to the result.
        rescale: `shift` or `real`.
        w_element: That of the weights; `element` by default.
    """
    w_element = w_element or element
    shape, filters, kernel, stride, padding, dilation, groups = sizes
    rng = np.random.default_rng(len(str((sizes, element, schema, values, activation))))
    w_shape = (filters, shape[1] // groups, *kernel)
    g = geometry(shape, w_shape, stride, padding, dilation, groups)
    x_type = TensorType(element, shape, quantization(rng, element, schema, 0.02))
    w_type = weight_type(rng, w_element, w_shape, schema, by_channel, 0.01)
    of_y = quantization(rng, element, schema, 0.0002 * 127 * np.sqrt(g.depth))
    y_type = TensorType(element, g.out_shape, of_y)
    z_type = TensorType(element, g.out_shape, quantization(rng, element, schema, of_y.scale[0]))
    x, w = extreme_bytes(rng, shape, element, values), extreme_bytes(rng, w_shape, w_element, values)
    bias = rng.integers(-3000, 3000, filters).astype(np.int32)
    z = extreme_bytes(rng, g.out_shape, element, "random")
    operator = QuantizedConv(g.stride, g.padding, g.dilation, groups, of_y, activation, rescale)
    more = ((z_type, z),) if residual else ()
    types = (x_type, w_type, TensorType("int32", (filters,)), *(type for type, _ in more))
    expected = operator.evaluate_typed(types, x, w, bias, *(array for _, array in more))
    weights = Int8Weights(w, np.array(parameters_of(w_type).offset), parameters_of(x_type).offset[0], bias)
    scale = product_scale(x_type, w_type)
    if rescale == "real":
        rescaling = Rescaling(element, of_y.offset[0], scale=scale / of_y.scale[0])
    else:
        terms = [(scale, 31), *([term(z_type)] if residual else [])]
        rescaling = rescaling_of(terms, y_type, activation, z_type)
    layout: Layout = "plain" if shape[1] < 16 else "blocked"
    inputs = {"source": x if layout == "plain" else to_blocked(x, 16)}
    inputs |= {"residual": to_blocked(z, 16)} if residual else {}
    return QuantizedLayer(g, weights, rescaling, layout, inputs, expected)
