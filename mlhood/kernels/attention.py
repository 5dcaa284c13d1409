"""Attention of few queries as a native call, such as that of a decoder's next token to all tokens before it."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.errors import KernelError
from mlhood.kernels.codegen import attention_kernel, jit
from mlhood.kernels.codegen.attention_kernel import FIELDS
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call


@dataclass(frozen=True)
class Sizes:
    """Sizes of attention: q [heads, queries, depth], k [heads, keys, depth], v [heads, keys, width]."""

    heads: int
    queries: int
    keys: int
    depth: int
    width: int


def attend(
    sizes: Sizes,
    scale: float,
    *,
    mask: tuple[int, int] | None = None,
    causal: bool = False,
    target: Target | None = None,
) -> NativeCall:
    """Return a call that writes softmax(scale q k^T + mask) v to "out" [heads, queries, width].

    A row is 0 where all of its mask is -inf. Any number of threads gets the same bits.

    Args:
        sizes: Of contiguous "q", "k", "v"; depth and width are multiples of the processor's lanes.
        scale: Factor of the products of queries and keys.
        mask: Elements of "mask" between two heads and between two queries, 0 where they share it; its keys are
            contiguous. None without a mask.
        causal: Whether query i attends to keys 0 to i only.
        target: The processor; this machine's by default.

    Raises:
        KernelError: The depth or the width is none that the kernel can compute.
    """
    target = target or host()
    if min(sizes.depth, sizes.width) < 1 or sizes.depth % target.lanes or sizes.width % target.lanes:
        expected, got = f"multiples of {target.lanes}", f"{sizes.depth} and {sizes.width}"
        raise KernelError("keys or values of a length without a kernel", expected=expected, got=got)
    options = sizes.depth, sizes.width, mask is not None, bool(causal)
    kernel = jit.load(attention_kernel.build, target, *options)
    head, query = mask or (0, 0)
    values = {"tasks": sizes.heads * sizes.queries, "queries": sizes.queries, "keys": sizes.keys}
    values |= {"mask_head": head, "mask_query": query, "mask": 0}
    operands = ("q", "k", "v", "out", *(("mask",) if mask else ()))
    return native_call(kernel, FIELDS, values, operands, floats={"scale": scale}, name="attention")
