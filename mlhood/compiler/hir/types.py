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

# An axis is a number, or a name such as "batch"; what is computed from a name is an expression such as "batch+1".
Dim = int | str
Shape = tuple[Dim, ...]

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
ELEMENTS = (*_FLOATS, *_INTEGERS, "bool")

LARGEST_RANK = 64  # NumPy's
LARGEST_SIZE = 2**36  # elements; no tensor of a network for pictures comes near
_LONGEST_NAME = 120


@dataclass(frozen=True)
class Quantization:
    """How stored integers stand for reals: real = scale * (stored - offset), as Glow writes it.

    Args:
        scale: One positive number for the whole tensor, or one for each index of `axis`.
        offset: As many integers, of the element type's range; ONNX calls them zero points.
        axis: The axis that scale and offset run along, None if they are for the whole tensor.
    """

    scale: tuple[float, ...]
    offset: tuple[int, ...]
    axis: int | None = None


@dataclass(frozen=True)
class TensorType:
    """The type of a value.

    Args:
        element: One of `ELEMENTS`.
        shape: A number or a name for each axis.
        quantization: What the integers stand for; None where they are just numbers.
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
        """Number of elements, an expression where an axis is named."""
        return product(self.shape)

    @property
    def excess(self) -> str | None:
        """What is too much about the shape, in words; an open or an empty axis counts as one long."""
        if self.rank > LARGEST_RANK:
            return f"{self.rank} axes, where {LARGEST_RANK} are the most"
        size = math.prod([axis for axis in self.shape if isinstance(axis, int) and axis > 1])
        bits = size.bit_length() - 1
        return f"at least 2^{bits} elements, where {LARGEST_SIZE:,} are the most" if size > LARGEST_SIZE else None

    def with_shape(self, shape: Iterable[Dim]) -> TensorType:
        """Return this type with another shape; parameters of a whole tensor stay, those along an axis may not.

        Raises:
            CompilerError: The tensor is quantised along an axis, which another shape would move.
        """
        shape = tuple(shape)
        if self.quantization is not None and self.quantization.axis is not None and shape != self.shape:
            raise CompilerError(
                "this would move the axis that the tensor is quantised along",
                got=str(self.quantization),
                todo="dequantise first, or quantise the whole tensor with one scale",
            )
        return TensorType(self.element, shape, self.quantization)

    def faults(self) -> list[str]:
        """Return what is wrong with this type, in words."""
        found = [] if self.element in ELEMENTS else [f"no element type {self.element!r}"]
        for axis in self.shape:
            if isinstance(axis, bool) or not isinstance(axis, (int, str)) or axis == "":
                found.append(f"an axis must be a number or a name, not {axis!r}")
            elif isinstance(axis, int) and axis < 0:
                found.append(f"an axis cannot be {axis} long")
        if self.excess and not found:
            found.append(self.excess)
        return found + (_quantization_faults(self) if self.quantization and not found else [])


def _quantization_faults(tensor: TensorType) -> list[str]:
    parameters = tensor.quantization
    if parameters is None or tensor.element not in _INTEGERS:
        return [f"{tensor.element} is quantised, but only integers can be"]
    lengths = len(parameters.scale), len(parameters.offset)
    if parameters.axis is not None and not 0 <= parameters.axis < tensor.rank:
        return [f"quantised along axis {parameters.axis} of {tensor.rank}"]
    wanted: Dim = 1 if parameters.axis is None else tensor.shape[parameters.axis]
    if lengths[0] != lengths[1] or (isinstance(wanted, int) and lengths[0] != wanted):
        return [f"{lengths[0]} scales and {lengths[1]} offsets, where {wanted} are needed"]
    limits = np.iinfo(tensor.dtype)
    found = [f"scale {one} is not positive" for one in parameters.scale if not (math.isfinite(one) and one > 0)]
    outside = [one for one in parameters.offset if not float(one).is_integer() or not limits.min <= one <= limits.max]
    return found + [f"offset {one} does not fit {tensor.element}" for one in outside]


_ADDEND = re.compile(r"(.+?)([+-]\d+)\Z", re.DOTALL)


def _short(expression: str) -> str:
    """Return an expression, or a name that stands for it: written out, some would double in length at every node."""
    if len(expression) <= _LONGEST_NAME:
        return expression
    return f"axis_{hashlib.sha256(expression.encode('utf-8', 'surrogatepass')).hexdigest()[:16]}"


def plus(axis: Dim, number: int) -> Dim:
    """Return the axis made longer by a number: plus("h", 2) is "h+2", and plus("h+2", -2) is "h"."""
    if isinstance(axis, int):
        return axis + number
    if match := _ADDEND.match(axis):
        axis, number = match[1], number + int(match[2])
    return _short(f"{axis}{number:+d}") if number else axis


def add(first: Dim, second: Dim) -> Dim:
    """Return the length of two axes one after the other."""
    if isinstance(second, int):
        return plus(first, second)
    return plus(second, first) if isinstance(first, int) else _short(f"({first})+({second})")


def divide(axis: Dim, number: int, *, up: bool = False) -> Dim:
    """Return the axis divided by a number, rounded down, or up."""
    if number == 1:
        return axis
    if isinstance(axis, int):
        return -(-axis // number) if up else axis // number
    return _short(f"ceil(({axis})/{number})" if up else f"({axis})//{number}")


def scaled(axis: Dim, scale: float) -> Dim:
    """Return the axis made longer by a factor, rounded down."""
    if isinstance(axis, int):
        exact = Fraction(scale) * axis
        # As torch means it and ONNX Runtime does: ten elements by the float32 below 0.7 are seven, not six.
        return math.floor(np.float32(float(exact))) if exact < LARGEST_SIZE else math.floor(exact)
    return product((axis, int(scale))) if scale == int(scale) else _short(f"floor(({axis})*{scale!r})")


def cut_length(axis: str, start: int, stop: int, step: int) -> str:
    """Return the length of an open axis of which a slice is taken."""
    return _short(f"len(({axis})[{start}:{stop}:{step}])")


def product(shape: Iterable[Dim]) -> Dim:
    """Return the number of elements of a shape: product((2, "batch", 3)) is "6*batch"."""
    return _spelled(*_factors(shape))


def quotient(shape: Iterable[Dim], by: Iterable[Dim]) -> Dim | None:
    """Return how often `by` goes into `shape`; None where that is no whole number or cannot be known."""
    (number, names), (divisor, divisor_names) = _factors(shape), _factors(by)
    if divisor_names - names:
        return None
    if divisor == 0 or number % divisor:
        return None
    return _spelled(number // divisor, names - divisor_names)


def _factors(shape: Iterable[Dim]) -> tuple[int, Counter[str]]:
    number, names = 1, Counter[str]()
    for axis in shape:
        for part in str(axis).split("*") if _is_product(axis) else [axis]:
            if isinstance(part, int) or part.isdecimal():
                number *= int(part)
            else:
                names[part] += 1
    return number, names


def _is_product(axis: Dim) -> bool:
    return isinstance(axis, str) and "*" in axis and not set("()+-/") & set(axis)


def _spelled(number: int, names: Counter[str]) -> Dim:
    factors = sorted(names.elements())
    if not factors or number == 0:
        return number
    return _short("*".join(factors if number == 1 else [str(number), *factors]))


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that all the given ones stretch to, by NumPy's rules.

    An open axis beside a number takes the number: at run time it must be that long, or one.

    Raises:
        CompilerError: Two axes differ and neither is one, or two open axes have different names.
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    return tuple(_common(axes, shapes) for axes in zip(*padded, strict=True))


def _common(axes: tuple[Dim, ...], shapes: tuple[Shape, ...]) -> Dim:
    longer = {axis for axis in axes if axis != 1}
    numbers = {axis for axis in longer if isinstance(axis, int)} or longer
    if len(numbers) <= 1:
        return next(iter(numbers), 1)
    raise CompilerError(
        "these shapes do not broadcast",
        expected="axes that are equal, or 1",
        got=" and ".join(str(list(shape)) for shape in shapes),
        todo="check the shapes; give open axes that are always equal the same name" if numbers == longer else None,
    )


def normalized(axis: int, rank: int) -> int:
    """Return the axis counted from the front.

    Raises:
        CompilerError: There is no such axis.
    """
    if -rank <= axis < rank:
        return axis % rank
    raise CompilerError("there is no such axis", expected=f"-{rank} to {rank - 1}", got=axis)
