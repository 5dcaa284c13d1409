"""Discrete Fourier transforms: complex numbers are a last axis of length 2, reals one of length 1."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.lib.stride_tricks import sliding_window_view

from mlhood.compiler.hir.lengths import add_dims, divide_dim, product
from mlhood.compiler.hir.operator import Operator, common_element, require, require_unquantized
from mlhood.compiler.hir.types import Dim, Shape, TensorType, normalize_axis
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, NO_PRODUCTS, POSITIONAL, STAYS_FLOAT
from mlhood.compiler.operators.indexing import require_equal
from mlhood.compiler.operators.onnx_node import OnnxNode


class FourierTransform(Operator):
    """Base: signals [..., 1] of reals or [..., 2] of complex numbers are transformed."""

    family = "other"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    macs = NO_PRODUCTS

    def _check(self, x: TensorType, parts: tuple[int, ...]) -> None:
        """Raise CompilerError unless the last axis of a signal has one of some lengths."""
        require_unquantized(x)
        require(x.is_float, "the signal must be floating-point", got=x.element)
        valid = x.rank >= 2 and (isinstance(x.shape[-1], str) or x.shape[-1] in parts)
        wanted = f"at least two axes, the last of length {' or '.join(map(str, parts))}"
        require(valid, "the signal does not have the shape of such numbers", expected=wanted, got=list(x.shape))


def _numbers(x: np.ndarray) -> np.ndarray:
    """Return the numbers that the last axis holds, real or complex."""
    wide = x.astype(np.result_type(x.dtype, np.float32), copy=False)
    if x.shape[-1] == 1:
        return wide[..., 0]
    return np.ascontiguousarray(wide).view(np.result_type(wide.dtype, np.complex64))[..., 0]


def _parts(y: np.ndarray, dtype: np.dtype) -> np.ndarray:
    """Return complex numbers as a last axis of their real and imaginary parts."""
    return np.stack((np.real(y), np.imag(y)), -1).astype(dtype, copy=False)


def _half(length: Dim) -> Dim:
    """Return how many numbers of the transform of a real signal the others follow from."""
    return add_dims(divide_dim(length, 2), 1)


def _lengths(shape: Shape) -> list[int]:
    return [int(axis) for axis in shape]


@dataclass(frozen=True)
class DFT(FourierTransform):
    """y[k] = sum of x[n] exp(-2 pi i k n / length) along an axis; the inverse has +2 pi i, and divides by the length.

    Source: ONNX, operator DFT. The result is complex, that of an inverse with `onesided` real.

    Attributes:
        axis: Along which axis.
        length: The signal is cut to this length, or padded with zeros; by default it keeps its own.
        inverse: Whether it is the inverse.
        onesided: Whether the complex side, of a real signal, only has its first half: length // 2 + 1 numbers.
    """

    axis: int = -2
    length: int | None = None
    inverse: bool = False
    onesided: bool = False

    onnx = ("DFT",)

    def infer(self, x: TensorType) -> TensorType:
        real = self.onesided and self.inverse
        self._check(x, (2,) if real else (1,) if self.onesided else (1, 2))
        axis = normalize_axis(self.axis, x.rank)
        require(axis < x.rank - 1, "the last axis holds complex numbers and cannot be transformed", got=self.axis)
        length = self._length(x.shape[axis])
        valid = isinstance(length, str) or length >= 1
        require(valid, "the length of a Fourier transform must be positive", got=length)
        count = _half(length) if self.onesided and not self.inverse else length
        return x.with_shape((*x.shape[:axis], count, *x.shape[axis + 1 : -1], 1 if real else 2))

    def _length(self, size: Dim) -> Dim:
        """Return the length of the transform of an axis."""
        if self.length is not None:
            return self.length
        return add_dims(product((2, size)), -2) if self.onesided and self.inverse else size

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        axis = self.axis % x.ndim
        signal, length = _numbers(x), int(self._length(x.shape[axis]))
        if self.onesided and self.inverse:
            return np.fft.irfft(signal, length, axis)[..., None].astype(x.dtype, copy=False)
        transform = np.fft.rfft if self.onesided else np.fft.ifft if self.inverse else np.fft.fft
        return _parts(transform(signal, length, axis), x.dtype)

    def workspace(self, *types: TensorType | None) -> int:
        if types[0] is None:
            return 0
        shape = _lengths(types[0].shape[:-1])
        axis = self.axis % (len(shape) + 1)
        shape[axis] = max(shape[axis], int(self._length(shape[axis])))
        return 4 * math.prod(shape)  # the signal and its transform, both complex

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        length = "" if self.length is None else writer.constant(np.array(self.length, np.int64))
        options = {"inverse": self.inverse, "onesided": self.onesided}
        if writer.opset < 20:
            axis = normalize_axis(self.axis, writer.node.inputs[0].type.rank)
            return writer.emit("DFT", *inputs, *([length] if length else []), name=name, axis=axis, **options)
        return writer.emit("DFT", *inputs, length, writer.constant(np.array(self.axis, np.int64)), name=name, **options)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        axis = source.attribute("axis", 1 if source.opset < 20 else -2)
        if source.opset >= 20 and source.has(2):
            axis = _number(source, 2)
        x = source.input(0)
        inverse, onesided = bool(source.attribute("inverse", 0)), bool(source.attribute("onesided", 0))
        same = source.has(1) and source.known_dims(1) == (x.type.shape[normalize_axis(axis, x.type.rank)],)
        whole = same and not (inverse and onesided)  # its own length, which may be open
        length = _number(source, 1) if source.has(1) and not whole else None
        return source.add(cls(axis, length, inverse, onesided), x)


def _number(source: OnnxNode, position: int) -> int:
    """Return an input that is one integer."""
    numbers = source.integers(position)
    require(len(numbers) == 1, "an input must be one number", expected="1 number", got=len(numbers))
    return numbers[0]


@dataclass(frozen=True)
class STFT(FourierTransform):
    """y[b, f] = the Fourier transform of the window times x[b, f * step : f * step + length].

    Source: ONNX, operator STFT. Inputs: x [b, n, 1 or 2]; the window [length], or none.
    Output: [b, 1 + (n - length) // step, length, 2].

    Attributes:
        step: The distance between frames.
        length: Of a frame.
        onesided: Whether the result only has length // 2 + 1 numbers of each frame; the signal is real then.
    """

    step: int
    length: int
    onesided: bool = True

    arity = (1, 2)
    onnx = ("STFT",)

    def infer(self, x: TensorType, window: TensorType | None = None) -> TensorType:
        self._check(x, (1,) if self.onesided else (1, 2))
        require(x.rank == 3, "the signal must have three axes", got=list(x.shape))
        require(self.step >= 1 and self.length >= 1, "step and length must be positive", got=[self.step, self.length])
        if window is not None:
            common_element(x, window)
            require_equal("the window must be as long as a frame", (self.length,), window.shape)
        size = x.shape[1]
        fits = isinstance(size, str) or size >= self.length
        require(fits, "the signal is shorter than a frame", expected=f">= {self.length}", got=size)
        count = _half(self.length) if self.onesided else self.length
        return x.with_shape((x.shape[0], self._frames(size), count, 2))

    def _frames(self, size: Dim) -> Dim:
        return add_dims(divide_dim(add_dims(size, -self.length), self.step), 1)

    def evaluate(self, x: np.ndarray, window: np.ndarray | None = None) -> np.ndarray:
        frames = sliding_window_view(_numbers(x), self.length, 1)[:, :: self.step]
        frames = frames if window is None else frames * window
        return _parts((np.fft.rfft if self.onesided else np.fft.fft)(frames), x.dtype)

    def workspace(self, *types: TensorType | None) -> int:
        if types[0] is None:
            return 0
        batch, size, _ = _lengths(types[0].shape)
        return 4 * batch * max(size, int(self._frames(size)) * self.length)  # the frames and their transforms

    def to_onnx(self, writer: Any, inputs: list[str], name: str) -> str:
        x, window = (*inputs, "")[:2]
        step, length = (writer.constant(np.array(number, np.int64)) for number in (self.step, self.length))
        return writer.emit("STFT", x, step, window, length, name=name, onesided=self.onesided)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        window = source.optional(2)
        length: Dim | None = _number(source, 3) if source.has(3) else None
        if length is None:
            require(window is not None, "the node needs a window or the length of a frame")
            length = window.type.shape[0] if window is not None and window.type.rank else None
        if not isinstance(length, int):
            raise source.unsupported("the length of a frame is not known", "give the length of the window")
        operator = cls(_number(source, 1), length, bool(source.attribute("onesided", 1)))
        return source.add(operator, source.input(0), *([] if window is None else [window]))


OPERATORS = (DFT, STFT)
