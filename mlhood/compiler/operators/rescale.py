"""From sums of scaled integers to a quantised tensor, in integer arithmetic: the last step of all integer operators."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, namespace, require
from mlhood.compiler.hir.types import Quantization, Shape, TensorType
from mlhood.compiler.operators.activation import Activation, activation_to_onnx, check_activation
from mlhood.compiler.operators.fixed_point import MULTIPLIER_BITS, fixed_points, round_shift
from mlhood.compiler.operators.onnx_writer import OnnxWriter

# parameters under which the stored integers are the represented numbers
UNIT_SCALE = Quantization((1.0,), (0,))

# The others need a table of all values, see `lookup`.
INTEGER_ACTIVATIONS = ("Relu", "Clip", "LeakyRelu")
# More bits than float64 holds would not make a multiplier more exact.
_WIDEST = 52


@dataclass(frozen=True)
class Term:
    """Integers that represent scale * values, within -2^bits to 2^bits.

    Args:
        values: Integers, as int64.
        scale: float64, one number or an array that broadcasts to the values.
        bits: Bound of the values by their types, not by the values themselves.
    """

    values: np.ndarray
    scale: np.ndarray
    bits: int


def parameters_of(type: TensorType) -> Quantization:
    """Return the quantisation parameters of a type; without any, integers represent themselves."""
    return type.quantization or UNIT_SCALE


def max_magnitude(type: TensorType) -> int:
    """Return the largest |stored - offset| of a quantised type."""
    limits = np.iinfo(type.dtype)
    return max(max(limits.max - offset, offset - limits.min) for offset in parameters_of(type).offset)


def bit_width(number: int) -> int:
    """Return the smallest b with 2^b >= number."""
    return max(number - 1, 0).bit_length()


def subtract_offset(x: np.ndarray, type: TensorType) -> np.ndarray:
    """Return stored - offset as int64, for a tensor with one offset."""
    return x.astype(np.int64) - parameters_of(type).offset[0]


def as_term(x: np.ndarray, type: TensorType) -> Term:
    """Return a quantised tensor with one scale as a term."""
    return Term(subtract_offset(x, type), np.array(parameters_of(type).scale[0]), bit_width(max_magnitude(type)))


def require_per_tensor(*types: TensorType | None) -> None:
    """Raise CompilerError unless all tensors are quantised, each with one scale."""
    for type in types:
        if type is not None:
            require(type.quantization is not None, "the input is not quantised", got=type.element)
            require(parameters_of(type).axis is None, "the tensor must be quantised per tensor")


def quantized_type(element: str, shape: Shape, quantization: Quantization, activation: Activation = ()) -> TensorType:
    """Return the type of an integer operator's result.

    Raises:
        CompilerError: The parameters do not fit the element type, or the activation needs reals or a table.
    """
    y = TensorType(element, shape, quantization)
    require(quantization.axis is None, "the result must be quantised per tensor")
    require(not y.violations(), "invalid quantisation parameters", got="; ".join(y.violations()))
    check_activation(activation)
    fits = not activation or activation[0] in INTEGER_ACTIVATIONS
    names = ", ".join(INTEGER_ACTIVATIONS)
    require(fits, "unsupported activation of an integer operator", expected=names, got=activation)
    return y


def requantize(terms: Sequence[Term], type: TensorType, activation: Activation = ()) -> np.ndarray:
    """Return the quantised activation of the sum of terms, computed with integers.

    The terms are multiplied by integers that represent scale / scale_y, all with one shift, so that their sum is
    rounded once (ties up); then come the offset, the activation's limits as integers, and saturation. LeakyRelu has a
    second set of multipliers, alpha times the first, for negative sums.

    Args:
        terms: What to add.
        type: The result's type, with its quantisation.
        activation: None, Relu, Clip or LeakyRelu.

    Returns:
        Integers of the type's element type, of the shape that the terms broadcast to.
    """
    quantization = parameters_of(type)
    total, shift = _scaled(terms, 1.0, type)
    y, xp = round_shift(total, shift), namespace(total)
    if activation and activation[0] == "LeakyRelu":
        y = xp.where(total < 0, round_shift(*_scaled(terms, float(activation[1] or 0), type)), y)
    return xp.clip(y + quantization.offset[0], *stored_range(type, activation)).astype(type.dtype)


def _scaled(terms: Sequence[Term], factor: float, type: TensorType) -> tuple[np.ndarray, np.ndarray]:
    widest = MULTIPLIER_BITS if type.dtype.itemsize == 1 else _WIDEST
    scales = [np.asarray(term.scale * factor / parameters_of(type).scale[0], np.float64) for term in terms]
    multipliers, shift = fixed_points(scales, [term.bits for term in terms], widest)
    products = [term.values * multiplier for term, multiplier in zip(terms, multipliers, strict=True)]
    total = sum(products[1:], start=products[0])
    return (np.asarray(total) if np.isscalar(total) else total), shift


def stored_range(type: TensorType, activation: Activation) -> tuple[int, int]:
    """Return the smallest and the largest integer of the result."""
    limits, quantization = np.iinfo(type.dtype), parameters_of(type)
    low, high = activation[1:3] if activation and activation[0] == "Clip" else (None, None)
    if activation and activation[0] == "Relu":
        low = 0

    def stored(real: float | int | str | None, otherwise: int) -> int:
        if real is None:
            return otherwise
        integer = np.rint(float(real) / quantization.scale[0]) + quantization.offset[0]
        return int(np.clip(integer, limits.min, limits.max))

    return stored(low, int(limits.min)), stored(high, int(limits.max))


@dataclass(frozen=True)
class Rescale(Operator):
    """y = activation(x) with other parameters: integers that represent the same reals.

    Attributes:
        quantization: The result's parameters.
        activation: None, Relu, Clip or LeakyRelu.
    """

    quantization: Quantization
    activation: Activation = ()

    def infer(self, x: TensorType) -> TensorType:
        require_per_tensor(x)
        return quantized_type(x.element, x.shape, self.quantization, self.activation)

    def evaluate_typed(self, types: tuple[TensorType, ...], x: np.ndarray) -> np.ndarray:
        return requantize([as_term(x, types[0])], self.infer(types[0]), self.activation)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return activation_to_onnx(self.activation, writer, inputs[0], name)


OPERATORS = (Rescale,)
