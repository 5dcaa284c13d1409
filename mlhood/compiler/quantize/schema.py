"""Quantisation parameters for a range of real values: Glow's four schemas, and the options of a quantisation.

real = scale (stored - offset). Formulas: Glow, `chooseQuantizationParams` in lib/Quantization/Base/Base.cpp.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.types import Quantization
from mlhood.errors import CompilerError, nearest

SCHEMAS = ("asymmetric", "symmetric", "symmetric_unsigned", "power_of_two")
QUANTIZED_ELEMENTS = ("int8", "int16", "uint8")

# For a range that contains only 0; any scale would do.
_SCALE_OF_ZERO = 0.1


def choose_parameters(low: float, high: float, element: str = "int8", schema: str = "asymmetric") -> tuple[float, int]:
    """Return the scale and offset that represent the reals from `low` to `high` as integers.

    The range is first widened to include 0, so that 0 is represented exactly. With integers from qmin to qmax:

    1. asymmetric: scale = (high - low) / (qmax - qmin); offset = qmin - low / scale or qmax - high / scale, whichever
       has the smaller |limit| + |end / scale| and hence the smaller error, rounded, and clamped to [qmin, qmax]. If
       low = -high, which would be a tie, the offset is 0.
    2. symmetric: offset 0. The scale is the smallest without saturation: scale = max(low / qmin, high / qmax).
    3. symmetric_unsigned: if low >= 0, offset = qmin, so that all integers represent positive reals; else symmetric.
    4. power_of_two: symmetric, then scale = 2^ceil(log2 scale), so that rescaling is a shift.

    uint8 is int8 with the offset increased by 128, so "0" above reads 128. A range that contains only 0 gets the scale
    0.1. (Glow compares low = -high with a tolerance of 2^-23, which would saturate half of a tiny positive range.)

    Args:
        low: Minimum; finite.
        high: Maximum; finite, not below `low`.
        element: "int8", "int16" or "uint8".
        schema: One of `SCHEMAS`.

    Returns:
        The scale, a positive float32 as a Python float, and the offset.

    Raises:
        CompilerError: The range, schema or element type is invalid.
    """
    check_schema(schema)
    check_element(element)
    if not (math.isfinite(low) and math.isfinite(high) and low <= high):
        raise CompilerError("invalid range to quantise", expected="low <= high, both finite", got=f"{low} to {high}")
    low, high = min(float(low), 0.0), max(float(high), 0.0)
    if schema == "asymmetric":
        return _asymmetric(low, high, element)
    limits, centre = np.iinfo("int8" if element == "uint8" else element), 128 if element == "uint8" else 0
    qmin, qmax = int(limits.min), int(limits.max)
    if schema == "symmetric_unsigned" and low >= 0:
        return _positive(high / (qmax - qmin)), qmin + centre
    scale = _positive(max(low / qmin, high / qmax))
    return (_power_of_two(scale) if schema == "power_of_two" else scale), centre


def _asymmetric(low: float, high: float, element: str) -> tuple[float, int]:
    limits = np.iinfo(element)
    qmin, qmax = int(limits.min), int(limits.max)
    scale = (high - low) / (qmax - qmin)
    if low == -high:
        return _positive(scale), (qmin + qmax + 1) // 2
    if _positive(scale) != float(np.float32(scale)):  # too small for a float32, or zero
        scale = _positive(scale)
    from_low, from_high = qmin - low / scale, qmax - high / scale
    low_is_closer = abs(qmin) + abs(low / scale) < abs(qmax) + abs(high / scale)
    return _positive(scale), min(max(_round(from_low if low_is_closer else from_high), qmin), qmax)


def _round(x: float) -> int:
    """Round to nearest, halves away from zero, like C's `round`."""
    return int(math.copysign(math.floor(abs(x) + 0.5), x))


def _positive(scale: float) -> float:
    """Return the scale as a normal, positive float32."""
    if scale == 0:
        scale = _SCALE_OF_ZERO
    return max(float(np.float32(scale)), float(np.finfo(np.float32).tiny))


def _power_of_two(scale: float) -> float:
    mantissa, exponent = math.frexp(scale)
    return math.ldexp(1.0, exponent - 1 if mantissa == 0.5 else exponent)


def check_schema(schema: str) -> None:
    """Raise CompilerError if a schema is unknown."""
    if schema not in SCHEMAS:
        raise CompilerError(
            "unknown schema", expected=", ".join(SCHEMAS), got=repr(schema), todo=nearest(schema, SCHEMAS)
        )


def check_element(element: str) -> None:
    """Raise CompilerError if tensors cannot be quantised to this element type."""
    if element not in QUANTIZED_ELEMENTS:
        expected, todo = ", ".join(QUANTIZED_ELEMENTS), nearest(element, QUANTIZED_ELEMENTS)
        raise CompilerError("unsupported quantised element type", expected=expected, got=repr(element), todo=todo)


def tensor_parameters(array: np.ndarray, element: str = "int8", schema: str = "asymmetric") -> Quantization:
    """Return the parameters of an array from its minimum and maximum; see `choose_parameters`."""
    low, high = (float(array.min()), float(array.max())) if array.size else (0.0, 0.0)
    scale, offset = choose_parameters(low, high, element, schema)
    return Quantization((scale,), (offset,))


def channel_parameters(array: np.ndarray, element: str = "int8", schema: str = "symmetric") -> Quantization:
    """Return the parameters of an array [C, ...] with one scale and offset per channel (axis 0)."""
    rows = [tensor_parameters(row, element, schema) for row in array]
    return Quantization(tuple(row.scale[0] for row in rows), tuple(row.offset[0] for row in rows), 0)


def quantize_array(array: np.ndarray, quantization: Quantization, element: str) -> np.ndarray:
    """Quantise an array: clip(round(x / scale) + offset), ties to even."""
    limits = np.iinfo(element)
    scale, offset = _broadcastable(quantization, array.ndim)
    return np.clip(np.rint(array.astype(np.float64) / scale) + offset, limits.min, limits.max).astype(element)


def dequantize_array(stored: np.ndarray, quantization: Quantization) -> np.ndarray:
    """Return the real values that integers represent, float64: scale (stored - offset)."""
    scale, offset = _broadcastable(quantization, stored.ndim)
    return (stored.astype(np.float64) - offset) * scale


def _broadcastable(quantization: Quantization, rank: int) -> tuple[np.ndarray, np.ndarray]:
    shape = [-1 if i == quantization.axis else 1 for i in range(rank)] if quantization.axis is not None else []
    return np.array(quantization.scale).reshape(shape), np.array(quantization.offset, np.float64).reshape(shape)


@dataclass(frozen=True)
class Recipe:
    """Options of the quantisation.

    Args:
        schema: How a range is mapped to a scale and an offset; one of `SCHEMAS`.
        element: Element type of activations: "int8", "int16" or "uint8". Weights have the same, except int8 with uint8
            activations.
        per_channel: Give each output channel of a weight its own scale. The weight's offset is then 0, as ONNX
            Runtime and most hardware require: an asymmetric schema applies to activations only.
        headroom: Fraction by which the range of activations is widened, for data that exceed the calibration data.
            By default 0 for 8 bits and 0.5 for 16 bits, which have steps to spare and whose error would mostly be due
            to saturation.

    Raises:
        CompilerError: An option is invalid.
    """

    schema: str = "asymmetric"
    element: str = "int8"
    per_channel: bool = False
    headroom: float | None = None

    def __post_init__(self) -> None:
        check_schema(self.schema)
        check_element(self.element)
        if self.headroom is not None and not 0 <= self.headroom <= 100:
            raise CompilerError("invalid headroom", expected="0 to 100", got=self.headroom)

    @property
    def margin(self) -> float:
        """The factor by which the range of activations is widened."""
        if self.headroom is not None:
            return 1 + self.headroom
        return 1.5 if self.element == "int16" else 1.0

    @property
    def weight_element(self) -> str:
        """Element type of weights."""
        return "int8" if self.element == "uint8" else self.element

    @property
    def weight_schema(self) -> str:
        """Schema of weights."""
        if self.schema == "power_of_two":
            return self.schema
        return "symmetric" if self.per_channel or self.element == "uint8" else self.schema
