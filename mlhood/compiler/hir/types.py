"""Tensor types: element type, shape with symbolic axes, and the quantisation parameters."""

from __future__ import annotations

import hashlib
import math
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from mlhood.errors import CompilerError

# The length of an axis: a number, the name of a dynamic axis such as "batch", or an expression such as "batch+1".
Dim = int | str
Shape = tuple[Dim, ...]

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ELEMENTS = (*_FLOATS, *_INTEGERS, "bool")

MAX_RANK = 64  # NumPy's
MAX_ELEMENTS = 2**36  # far above any tensor of a vision network
_MAX_NAME_CHARS = 120


@dataclass(frozen=True)
class Quantization:
    """Which reals stored integers represent: real = scale * (stored - offset), in Glow's notation.

    Args:
        scale: One positive number for the whole tensor, or one for each index of `axis`.
        offset: As many integers within the range of the element type; ONNX calls them zero points.
        axis: The axis along which scale and offset vary; None for the whole tensor.
    """

    scale: tuple[float, ...]
    offset: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class TensorType:
    """The type of a value.

    Args:
        element: One of `ELEMENTS`.
        shape: The length of each axis.
        quantization: Which reals the integers represent; None if the elements are the numbers themselves.
    """

    element: str
    shape: Shape
    quantization: Quantization | None = None

    @property
    def rank(self) -> int:
        """Number of axes."""
        return len(self.shape)

    @property
    def dtype(self) -> np.dtype:
        """NumPy's type of one element."""
        return np.dtype(self.element)

    @property
    def is_float(self) -> bool:
        """Whether the elements are floating-point numbers."""
        return self.element in _FLOATS

    @property
    def size(self) -> Dim:
        """Number of elements, an expression if an axis is dynamic."""
        return product(self.shape)

    @property
    def size_violation(self) -> str | None:
        """Which limit the shape exceeds, as text; None if it exceeds none. Dynamic and empty axes count as length 1."""
        if self.rank > MAX_RANK:
            return f"{self.rank} axes, the maximum is {MAX_RANK}"
        size = math.prod([axis for axis in self.shape if isinstance(axis, int) and axis > 1])
        bits = size.bit_length() - 1
        return f"at least 2^{bits} elements, the maximum is {MAX_ELEMENTS:,}" if size > MAX_ELEMENTS else None

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        """Return this type with another shape and the same quantisation.

        Raises:
            CompilerError: The quantisation is per axis, which need not be the same axis in the other shape.
        """
        shape = tuple(shape)
        if self.quantization is not None and self.quantization.axis is not None and shape != self.shape:
            raise CompilerError(
                "a tensor that is quantised per axis cannot change its shape",
                got=str(self.quantization),
                todo="dequantise first, or quantise the whole tensor with one scale",
            )
        return TensorType(self.element, shape, self.quantization)

    def violations(self) -> list[str]:
        """Return everything that is invalid about this type, as text."""
        violations = [] if self.element in ELEMENTS else [f"unknown element type {self.element!r}"]
        for axis in self.shape:
            if isinstance(axis, bool) or not isinstance(axis, (int, str)) or axis == "":
                violations.append(f"an axis must be a number or a name, not {axis!r}")
            elif isinstance(axis, int) and axis < 0:
                violations.append(f"an axis cannot have length {axis}")
        if self.size_violation and not violations:
            violations.append(self.size_violation)
        return violations + (_quantization_violations(self) if self.quantization and not violations else [])


def _quantization_violations(tensor: TensorType) -> list[str]:
    parameters = tensor.quantization
    if parameters is None or tensor.element not in _INTEGERS:
        return [f"{tensor.element} is quantised, but only integers can be"]
    lengths = len(parameters.scale), len(parameters.offset)
    if parameters.axis is not None and not 0 <= parameters.axis < tensor.rank:
        return [f"quantised along axis {parameters.axis} of {tensor.rank}"]
    count: Dim = 1 if parameters.axis is None else tensor.shape[parameters.axis]
    if lengths[0] != lengths[1] or (isinstance(count, int) and lengths[0] != count):
        return [f"{lengths[0]} scales and {lengths[1]} offsets instead of {count} each"]
    limits = np.iinfo(tensor.dtype)
    violations = [f"scale {scale} is not positive" for scale in parameters.scale if not 0 < scale < math.inf]
    for offset in parameters.offset:
        if not float(offset).is_integer() or not limits.min <= offset <= limits.max:
            violations.append(f"offset {offset} is out of the range of {tensor.element}")
    return violations


_SUM = re.compile(r"(.+?)([+-]\d+)\Z", re.DOTALL)


def _short(expression: str) -> str:
    """Return an expression, or a name for a long one: some would double in length at every node."""
    if len(expression) <= _MAX_NAME_CHARS:
        return expression
    return f"axis_{hashlib.sha256(expression.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def add_dims(first: Dim, second: Dim) -> Dim:
    """Return the sum of two lengths: add_dims("h", 2) is "h+2", and add_dims("h+2", -2) is "h"."""
    if isinstance(first, int):
        return first + second if isinstance(second, int) else add_dims(second, first)
    if isinstance(second, str):
        return _short(f"({first})+({second})")
    if match := _SUM.match(first):
        first, second = match[1], second + int(match[2])
    return _short(f"{first}{second:+d}") if second else first


def divide_dim(axis: Dim, divisor: int, *, up: bool = False) -> Dim:
    """Return a length divided by a number, rounded down, or up."""
    if divisor == 1:
        return axis
    if isinstance(axis, int):
        return -(-axis // divisor) if up else axis // divisor
    return _short(f"ceil(({axis})/{divisor})" if up else f"({axis})//{divisor}")


def scale_dim(axis: Dim, scale: float) -> Dim:
    """Return a length multiplied by a factor, rounded down."""
    if isinstance(axis, int):
        exact = Fraction(scale) * axis
        # Rounded to float32 first, as in torch and ONNX Runtime: 10 elements by the float32 below 0.7 are 7, not 6.
        return math.floor(np.float32(float(exact))) if exact < MAX_ELEMENTS else math.floor(exact)
    return product((axis, int(scale))) if scale == int(scale) else _short(f"floor(({axis})*{scale!r})")


def slice_length(axis: str, start: int, stop: int, step: int) -> str:
    """Return the length of a slice of a dynamic axis."""
    return _short(f"len(({axis})[{start}:{stop}:{step}])")


def product(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape: product((2, "batch", 3)) is "6*batch"."""
    return _format_product(*_factors(shape))


def quotient(shape: Iterable[Dim], divisor: Iterable[Dim]) -> Dim | None:
    """Return the number of elements of a shape divided by that of another; None if it is not integral or unknown."""
    (number, names), (divisor_number, divisor_names) = _factors(shape), _factors(divisor)
    if divisor_names - names or divisor_number == 0 or number % divisor_number:
        return None
    return _format_product(number // divisor_number, names - divisor_names)


def _factors(shape: Iterable[Dim]) -> tuple[int, Counter[str]]:
    number, names = 1, Counter[str]()
    for axis in shape:
        is_product = isinstance(axis, str) and "*" in axis and not set("()+-/") & set(axis)
        for part in str(axis).split("*") if is_product else [axis]:
            if isinstance(part, int) or part.isdecimal():
                number *= int(part)
            else:
                names[part] += 1
    return number, names


def _format_product(number: int, names: Counter[str]) -> Dim:
    factors = sorted(names.elements())
    if not factors or number == 0:
        return number
    return _short("*".join(factors if number == 1 else [str(number), *factors]))


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that all the given ones are broadcast to, by NumPy's rules.

    A dynamic axis beside a number becomes the number: at run time it must have that length, or 1.

    Raises:
        CompilerError: Two axes differ and neither is 1, or two dynamic axes have different names.
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_broadcast_axis(axes, shapes) for axes in zip(*padded, strict=True))


def _broadcast_axis(axes: tuple[Dim, ...], shapes: tuple[Shape, ...]) -> Dim:
    lengths = {axis for axis in axes if axis != 1}
    candidates = {axis for axis in lengths if isinstance(axis, int)} or lengths
    if len(candidates) <= 1:
        return next(iter(candidates), 1)
    dynamic = candidates == lengths
    raise CompilerError(
        "the shapes cannot be broadcast",
        expected="axes that are equal, or 1",
        got=" and ".join(str(list(shape)) for shape in shapes),
        todo="check the shapes; give dynamic axes that are always equal the same name" if dynamic else None,
    )


def normalize_axis(axis: int, rank: int) -> int:
    """Return the index of an axis from the front; a negative one counts from the end.

    Raises:
        CompilerError: The index is out of range.
    """
    if -rank <= axis < rank:
        return axis % rank
    raise CompilerError("the axis is out of range", expected=f"-{rank} to {rank - 1}", got=axis)
