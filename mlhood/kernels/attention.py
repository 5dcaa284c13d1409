"""Attention as native calls: of few queries, such as a decoder's next token, and of many, such as a prefill."""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import Any

from mlhood.errors import KernelError
from mlhood.kernels import product
from mlhood.kernels.codegen import attention_kernel, jit
from mlhood.kernels.codegen.attention_kernel import FIELDS, KEYS
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call

_MOST_QUERIES = 8  # of more, the keys are packed, and read once for a block of queries
_BLOCK = 24  # queries of a block, about


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of attention: q [heads, queries, depth], k [heads / shared, keys, depth], v [heads / shared, keys, width].

    Each head of the keys and values is that of `shared` consecutive heads of the queries. A head of them is followed by
    room for more: it has as many as `room`, if that is not 0.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    width: int
    shared: int = 1
    room: int = 0


@dataclass(frozen=True)
class Mask:
    """How far apart the elements of a mask are; its keys are contiguous.

    Args:
        heads: Heads of an example of the batch.
        batch: Elements between two examples, 0 where they share the mask.
        head: Elements between two heads of an example, 0 where these share it.
        query: Elements between two queries, 0 where these share it.
    """

    heads: int = 1
    batch: int = 0
    head: int = 0
    query: int = 0


def attend(
    sizes: AttentionSizes, scale: float, *, mask: Mask | None = None, causal: bool = False, target: Target | None = None
) -> list[NativeCall]:
    """Return calls that write softmax(scale q k^T + mask) v to "out" [heads, queries, width].

    A row is 0 where all of its mask is -inf. Any number of threads gets the same bits.

    Args:
        sizes: Of "q", "k", "v"; a head is contiguous.
        scale: Factor of the products of queries and keys.
        mask: Layout of "mask"; None without one.
        causal: Whether query i attends to keys 0 to i only.
        target: The processor; this machine's by default.

    Raises:
        KernelError: The depth or the width is 0.
    """
    target = target or host()
    if min(sizes.depth, sizes.width) < 1:
        raise KernelError("attention of empty vectors", expected="1 or more", got=f"{sizes.depth} and {sizes.width}")
    is_few = sizes.queries <= _MOST_QUERIES and not sizes.depth % target.lanes and not sizes.width % target.lanes
    tile = product.choose(product.ProductSizes(sizes.queries, sizes.width, KEYS), target, KEYS)
    rows = 1 if is_few else -(-min(_BLOCK, sizes.queries) // tile.rows) * tile.rows
    blocks = -(-sizes.queries // rows)
    layout = mask or Mask()
    values = {"tasks": sizes.heads * blocks, "blocks": blocks, "queries": sizes.queries, "keys": sizes.keys}
    room = sizes.room or sizes.keys
    values |= {"k_head": room * sizes.depth, "v_head": room * sizes.width}
    values |= {"shared": sizes.shared, "mask_heads": layout.heads, "mask_batch": layout.batch}
    values |= {"mask_head": layout.head, "mask_query": layout.query, "mask": 0}
    masks = ("mask",) if mask else ()
    options: Any = {"floats": {"scale": scale}, "name": "attention"}
    if is_few:
        kernel = jit.load(attention_kernel.build, target, sizes.depth, sizes.width, bool(masks), causal)
        return [native_call(kernel, FIELDS, values, ("q", "k", "v", "out", *masks), **options)]
    kernel = jit.load(attention_kernel.build_blocks, target, sizes.depth, sizes.width, tile, rows, bool(masks), causal)
    call = native_call(kernel, FIELDS, values, ("q", "k", "v", "out", *masks), **options)
    calls, operands = [], dict(call.operands)
    for name, n, k, transposed in (("k", sizes.keys, sizes.depth, True), ("v", sizes.width, sizes.keys, False)):
        packed = product.ProductSizes(0, n, k, sizes.heads // sizes.shared)
        group = room * (k if transposed else n)
        pack = product.pack_at_run_time(packed, tile, group, transposed=transposed, target=target)
        size = 4 * packed.batch * -(-n // tile.columns) * tile.columns * k
        places, panels = {name: pack.operands["source"], f"{name} panels": pack.operands["out"]}, f"{name} panels"
        calls.append(replace(pack, operands=places, workspace={panels: size}))
        operands[panels] = operands.pop(name)
    return [*calls, replace(call, operands=operands)]
