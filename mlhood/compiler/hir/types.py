"""Tensor types: element type, shape with symbolic axes, and the quantisation parameters."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass

import ml_dtypes  # noqa: F401  (NumPy knows the names of its types from then on)
import numpy as np

from mlhood.compiler.hir.lengths import Dim, broadcast_dims, product
from mlhood.errors import CompilerError

Shape = tuple[Dim, ...]

_FLOATS = ("float16", "float32", "float64")
_INTEGERS = ("int8", "int16", "int32", "int64", "uint8", "uint16", "uint32", "uint64")
# Element types that are only stored and converted, and those in which operators compute on them.
STORED = {
    **dict.fromkeys(("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz"), "float32"),
    **dict.fromkeys(("float8_e8m0fnu", "float4_e2m1fn"), "float32"),
    "int4": "int8",
    "int2": "int8",
    "uint4": "uint8",
    "uint2": "uint8",
}
ELEMENTS = (*_FLOATS, *_INTEGERS, "bool", *STORED)

MAX_RANK = 64  # NumPy's
MAX_ELEMENTS = 2**36  # far above any tensor of a vision network


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


def broadcast(*shapes: Shape) -> Shape:
    """Return the shape that all the given ones are broadcast to, by NumPy's rules; see `broadcast_dims`.

    Raises:
        CompilerError: Two numbers differ, and neither is 1.
    """
    rank = max(map(len, shapes), default=0)
    padded = [(1,) * (rank - len(shape)) + shape for shape in shapes]
    try:
        return tuple(broadcast_dims(*axes) for axes in zip(*padded, strict=True))
    except CompilerError as error:
        got = " and ".join(str(list(shape)) for shape in shapes)
        expected, todo = "axes that are equal, or 1", "check the shapes of the inputs"
        raise CompilerError("the shapes cannot be broadcast", expected=expected, got=got, todo=todo) from error


def normalize_axis(axis: int, rank: int) -> int:
    """Return the index of an axis from the front; a negative one counts from the end.

    Raises:
        CompilerError: The index is out of range.
    """
    if -rank <= axis < rank:
        return axis % rank
    raise CompilerError("the axis is out of range", expected=f"-{rank} to {rank - 1}", got=axis)
