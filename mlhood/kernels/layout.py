"""Changes of the layout of float32 activations as native calls, as `geometry.to_blocked` and `to_plain` define them."""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit, layout_kernel
from mlhood.kernels.codegen.layout_kernel import Direction
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import TASK
from mlhood.kernels.native import NativeCall, native_call


def to_blocked(shape: Sequence[int], target: Target | None = None) -> NativeCall:
    """Return a call that copies "x" [N, C, H, W] to "out" [N, ceil(C / lanes), H, W, lanes].

    Lanes beyond the last channel become zero.

    Args:
        shape: N, C, H and W.
        target: The processor, which determines the lanes; this machine's by default.

    Raises:
        KernelError: If the shape does not have four dimensions.
    """
    return _prepare(shape, "to_blocked", target or host())


def to_plain(shape: Sequence[int], target: Target | None = None) -> NativeCall:
    """Return a call that copies "x" [N, ceil(C / lanes), H, W, lanes] to "out" [N, C, H, W].

    Args:
        shape: N, C, H and W.
        target: The processor, which determines the lanes; this machine's by default.

    Raises:
        KernelError: If the shape does not have four dimensions.
    """
    return _prepare(shape, "to_plain", target or host())


def _prepare(shape: Sequence[int], direction: Direction, target: Target) -> NativeCall:
    if len(shape) != 4:
        raise KernelError("only activations of images have layouts", expected="[N, C, H, W]", got=list(shape))
    images, channels, high, wide = shape
    pixels, lanes = high * wide, target.lanes
    blocks = -(-channels // lanes)
    if pixels == 1:
        plain, blocked = channels, blocks * lanes
        strides = (plain, blocked) if direction == "to_blocked" else (blocked, plain)
        values = {"tasks": images, "channels": channels, "x_row": strides[0], "out_row": strides[1]}
        kernel = jit.load(layout_kernel.build_copy, target, direction)
        return native_call(kernel, layout_kernel.COPY_FIELDS, values, ("x", "out"), name=direction)
    chunk = min(max(pixels, 1), TASK // lanes)
    plane_block, chunks = max(1, TASK // lanes // chunk), -(-pixels // chunk)
    planes = images * blocks
    tasks = -(-planes // plane_block) * chunks
    sizes = (tasks, planes, plane_block, blocks, max(chunks, 1), chunk, channels, pixels)
    values = dict(zip(layout_kernel.SIZES, sizes, strict=True))
    kernel = jit.load(layout_kernel.build, target, direction)
    return native_call(kernel, layout_kernel.FIELDS, values, ("x", "out"), name=direction)
