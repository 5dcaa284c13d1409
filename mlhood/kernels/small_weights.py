"""Products with weights of 8 or 4 bits as native calls: for few rows, where reading the weights is what takes time."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit, small_weights_kernel
from mlhood.kernels.codegen.small_weights_kernel import FIELDS
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.product import UNBOUNDED, Clip, ProductSizes, pack

_TASKS_PER_THREAD = 4


def bits_of(w: np.ndarray, group: int) -> int:
    """Return how many bits a weight of integers [N, K] takes, packed: 4 if all fit and K and the groups are even."""
    few = w.size == 0 or (w.min() >= -8 and w.max() <= 7)
    return 4 if few and w.shape[1] % 2 == 0 and group % 2 == 0 else 8


def tile_of(m: int, target: Target) -> tuple[int, int]:
    """Return rows and vectors of the register tile for m rows."""
    return (1, 4) if m == 1 else (min(m, 4 if target.registers >= 32 else 2), 2)


def pack_weights(w: np.ndarray, bits: int, width: int) -> np.ndarray:
    """Return integers [N, K] as panels: int8 [ceil(N / width), K, width], or uint8 with K / 2 pairs for 4 bits."""
    panels = -(-w.shape[0] // width)
    padded = np.zeros((panels * width, w.shape[1]), np.int8)
    padded[: w.shape[0]] = w
    packed = np.ascontiguousarray(padded.reshape(panels, width, -1).swapaxes(1, 2))
    if bits == 8:
        return packed
    low, high = packed[:, 0::2].view(np.uint8) & 15, packed[:, 1::2].view(np.uint8) << 4
    return np.ascontiguousarray(low | high)


def prepare(
    sizes: ProductSizes,
    packed: np.ndarray,
    scale: np.ndarray,
    group: int,
    bias: np.ndarray | None = None,
    clip: Clip | None = None,
    *,
    threads: int = 1,
    target: Target | None = None,
    epilogue: Sequence[Step] = (),
) -> NativeCall:
    """Prepare c = a (scale w)^T + bias: operands "a" float32 [m, k] and "out" float32 [m, n].

    Args:
        sizes: The sizes, of one product.
        packed: What `pack_weights` made for the columns of `tile_of`.
        scale: float32 [n, ceil(k / group)].
        group: Number of weights of a row that share a scale.
        bias: float32 [n] or None.
        clip: Bounds that the result is clamped to; None for none.
        threads: Number of threads; any number gives the same bits.
        target: The processor; the host by default.
        epilogue: Steps on the result as their only input; they replace the clamping.

    Raises:
        KernelError: A size is 0.
    """
    target = target or host()
    if min(sizes.m, sizes.n, sizes.k, group) < 1 or sizes.batch != 1:
        raise KernelError("a product without a kernel", expected="one, not empty", got=f"{sizes}")
    rows, vectors = tile_of(sizes.m, target)
    width, bits = vectors * target.lanes, 8 if packed.dtype == np.int8 else 4
    panels = len(packed)
    padded = np.zeros(panels * width, np.float32)
    padded[: sizes.n] = 0 if bias is None else bias
    scales = pack(np.ascontiguousarray(scale.T), width)
    chunk = max(1, panels // (1 if threads == 1 else threads * _TASKS_PER_THREAD))
    values = {"tasks": -(-panels // chunk), "chunk_panels": chunk, "panels": panels, "group": group}
    values |= {"m": sizes.m, "n": sizes.n, "k": sizes.k}
    values |= {"b": packed.ctypes.data, "s": scales.ctypes.data, "bias": padded.ctypes.data}
    floor, ceiling = clip or UNBOUNDED
    options = bits, rows, sizes.m % rows, vectors, checked_steps(epilogue, 1)
    kernel = jit.load(small_weights_kernel.build, target, *options)
    floats = {"floor": floor, "ceiling": ceiling}
    return native_call(
        kernel, FIELDS, values, ("a", "out"), floats=floats, keep=(packed, scales, padded), name=f"int{bits}_product"
    )
