"""Depthwise convolutions of bytes in the blocked layout, prepared once."""

from __future__ import annotations

import math

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.int8_depthwise_kernel import FIELDS, build, channel_order
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.int8_weights import Int8Weights
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.requantize import Rescaling

_ROWS = 4  # pixels that share a load of the weights
_TASKS_PER_THREAD = 8
_PAD_TASKS_PER_THREAD = 4


def prepare_depthwise(
    g: Geometry, weights: Int8Weights, rescaling: Rescaling, *, threads: int = 1, target: Target | None = None
) -> NativeCall:
    """Prepare a convolution of each channel by itself; input and result are blocked.

    Operands: `source`, `out`, `residual` if the rescaling has a second term; `x`, a workspace.

    Args:
        g: The geometry, with as many groups and filters as channels.
        weights: [C, 1, KH, KW].
        rescaling: How sums become bytes, by channel; the result's element type is that of the input.
        threads: Number of threads that will run it.
        target: The processor; the host by default.

    Raises:
        KernelError: The convolution is not depthwise, or the weights do not fit it.
    """
    if not g.channels == g.filters == g.groups:
        raise KernelError("the convolution is not depthwise", expected="one filter and one group per channel", got=g)
    if weights.w.shape != (g.channels, 1, *g.kernel):
        expected = [g.channels, 1, *g.kernel]
        raise KernelError("the weights do not fit", expected=expected, got=list(weights.w.shape))
    target = target or host()
    blocks, pixel_count = -(-g.channels // BLOCK), math.prod(g.out)
    planes, plane = g.images * blocks, math.prod(g.padded) * BLOCK
    packed, constants = _pack(g, weights, target), rescaling.constants(g.channels, weights.bias)
    taps, pixels = _taps(g), _pixels(g)
    rows = min(_ROWS, pixel_count)
    chunk = rows * -(-pixel_count // (rows * max(1, min(threads * _TASKS_PER_THREAD // planes, pixel_count // rows))))
    chunks = -(-pixel_count // chunk)
    pads = min(planes * g.padded[0], 1 if threads == 1 else _PAD_TASKS_PER_THREAD * threads)
    values = {"channels": g.channels, "high": g.height, "wide": g.width, "copied": g.width, "step_y": 1, "step_x": 1}
    values |= {"base": weights.x_zero_point, "padding": 0, "in_blocks": blocks, "in_pixel": BLOCK}
    values |= {"padded_high": g.padded[0], "padded_wide": g.padded[1], "top": g.padding[0], "left": g.padding[1]}
    values |= {"pads": pads, "rows": planes * g.padded[0], "tasks": pads + planes * chunks, "chunks": chunks}
    values |= {"chunk": chunk, "pixel_count": pixel_count, "plane": plane, "pairs": taps.size // 2}
    values |= {"pixels": pixels.ctypes.data, "taps": taps.ctypes.data, "w": packed.ctypes.data, "residual": 0}
    values |= {"constants": constants.ctypes.data, **rescaling.fields()}
    kind = rescaling.kind()
    operands = ("source", "out", "x", *(("residual",) if kind.residual else ()))
    keep = (pixels, taps, packed, constants)
    name = f"int8 depthwise {g.channels}, {g.kernel[0]}x{g.kernel[1]}"
    kernel = jit.load(build, target, rows, kind)
    return native_call(kernel, FIELDS, values, operands, workspace={"x": planes * plane * 2}, keep=keep, name=name)


def _pack(g: Geometry, weights: Int8Weights, target: Target) -> np.ndarray:
    """Return the weights as int16 [blocks, pairs of taps, 16 channels in the kernel's order, 2]."""
    blocks, count = -(-g.channels // BLOCK), math.prod(g.kernel)
    padded = np.zeros((blocks * BLOCK, count + count % 2), np.int16)
    padded[: g.channels, :count] = weights.centred().reshape(g.channels, count)
    by_pair = padded.reshape(blocks, BLOCK, -1, 2).transpose(0, 2, 1, 3)
    return np.ascontiguousarray(by_pair[:, :, channel_order(target.lanes)])


def _taps(g: Geometry) -> np.ndarray:
    """Return the offset of each tap from a window's first one, int64, an even number; a last one repeats the first."""
    y, x = np.ogrid[: g.kernel[0], : g.kernel[1]]
    taps = ((y * g.dilation[0] * g.padded[1] + x * g.dilation[1]) * BLOCK).ravel().astype(np.int64)
    return np.append(taps, taps[:1]) if taps.size % 2 else taps


def _pixels(g: Geometry) -> np.ndarray:
    """Return the offset of each result's window in a padded plane, int64."""
    y, x = np.ogrid[: g.out[0], : g.out[1]]
    return ((y * g.stride[0] * g.padded[1] + x * g.stride[1]) * BLOCK).ravel().astype(np.int64)
