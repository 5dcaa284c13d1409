"""Layouts of activations: plain [N, C, H, W], and blocked [N, C / lanes, H, W, lanes].

In the blocked layout as many channels as a register has lanes are adjacent, so a kernel with output channels in its
lanes stores full registers without transposing. Between the layers of a compiled model activations stay blocked.
(Georganas et al., Anatomy of High-Performance Deep Learning Convolutions on SIMD Architectures, SC 2018.)
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Literal

import numpy as np

from mlhood.errors import KernelError

Layout = Literal["plain", "blocked"]
LAYOUTS: tuple[Layout, ...] = ("plain", "blocked")


def stored_shape(shape: Sequence[int], layout: Layout, lanes: int) -> tuple[int, ...]:
    """Return the shape in memory of activations [N, C, H, W]: in the blocked layout C is rounded up to full blocks.

    Raises:
        KernelError: If the layout is unknown.
    """
    if layout not in LAYOUTS:
        raise KernelError("unknown layout", expected=list(LAYOUTS), got=repr(layout))
    images, channels, high, wide = shape
    if layout == "plain":
        return images, channels, high, wide
    return images, -(-channels // lanes), high, wide, lanes


def to_blocked(x: np.ndarray, lanes: int) -> np.ndarray:
    """Return a copy of [N, C, H, W] as [N, ceil(C / lanes), H, W, lanes], zero-padded where the last block is not full.

    Args:
        x: Array of any dtype.
        lanes: 1 or more; `mlhood.kernels.codegen.target.host().lanes` on this machine.

    Raises:
        KernelError: If x is not four-dimensional, or lanes is less than 1.
    """
    if x.ndim != 4:
        raise KernelError("only a plain layout can be blocked", expected="[N, C, H, W]", got=f"x{list(x.shape)}")
    if lanes < 1:
        raise KernelError("invalid number of lanes", expected="1 or more", got=lanes)
    images, channels, high, wide = x.shape
    out = np.zeros(stored_shape(x.shape, "blocked", lanes), x.dtype)
    whole = channels // lanes
    full = x[:, : whole * lanes].reshape(images, whole, lanes, high, wide)
    out[:, :whole] = full.transpose(0, 1, 3, 4, 2)
    if channels % lanes:
        out[:, whole, :, :, : channels % lanes] = x[:, whole * lanes :].transpose(0, 2, 3, 1)
    return out


def to_plain(x: np.ndarray, channels: int) -> np.ndarray:
    """Return a copy of [N, ceil(C / lanes), H, W, lanes] as [N, C, H, W].

    Args:
        x: Array of any dtype; lanes of its last block beyond the channels are dropped.
        channels: C.

    Raises:
        KernelError: If x does not have the number of blocks that C channels need.
    """
    if x.ndim != 5 or x.shape[1] != -(-channels // max(x.shape[-1], 1)):
        expected = f"[N, ceil({channels} / lanes), H, W, lanes]"
        raise KernelError("x does not have the blocked layout", expected=expected, got=f"x{list(x.shape)}")
    images, blocks, high, wide, lanes = x.shape
    full = x.transpose(0, 1, 4, 2, 3).reshape(images, blocks * lanes, high, wide)
    return np.ascontiguousarray(full[:, :channels])
