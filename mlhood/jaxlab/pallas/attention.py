"""Fused attention as a Pallas kernel: one pass over blocks of keys with an online softmax, so no score leaves the chip.

After M. Milakov, N. Gimelshein, Online normalizer calculation for softmax, 2018, arXiv:1805.02867 (section 3), and
T. Dao and others, FlashAttention, NeurIPS 2022, arXiv:2205.14135 (algorithm 1); the loop order is that of
T. Dao, FlashAttention-2, 2023, arXiv:2307.08691 (section 3.1): query blocks outside, key blocks inside.
"""

from __future__ import annotations

import math
from functools import partial
from typing import Any

import jax
import jax.numpy as jnp
from jax import lax
from jax.experimental import pallas as pl
from jax.experimental.pallas import triton

from mlhood.errors import XlaError

DTYPES = ("float32", "float16", "bfloat16")
SMALLEST_BLOCK = 16  # the least length and head dimension of a product on a GPU's matrix units (Triton, tl.dot)


def reference(q: jax.Array, k: jax.Array, v: jax.Array, causal: bool = False) -> jax.Array:
    """Return softmax(q k^T / sqrt(d)) v with the whole matrix of scores in memory; arguments as for `attention`."""
    scores = jnp.einsum("bhqd,bhkd->bhqk", q, k, precision="highest", preferred_element_type=jnp.float32)
    scores = scores / math.sqrt(q.shape[-1])
    if causal:
        scores = jnp.where(jnp.tril(jnp.ones(scores.shape[-2:], bool)), scores, -jnp.inf)
    weights = jax.nn.softmax(scores, axis=-1).astype(q.dtype)
    result = jnp.einsum("bhqk,bhkd->bhqd", weights, v, precision="highest", preferred_element_type=jnp.float32)
    return result.astype(q.dtype)


def attention(
    q: jax.Array,
    k: jax.Array,
    v: jax.Array,
    causal: bool = False,
    *,
    block_q: int = 64,
    block_k: int = 64,
    interpret: bool | None = None,
) -> jax.Array:
    """Return softmax(q k^T / sqrt(d)) v, computed block by block without storing the scores.

    Lengths that are no multiple of their block are padded, and the head dimension to a power of two, as Triton needs.

    Args:
        q: Queries [batch, heads, queries, d], float32, float16 or bfloat16; sums are float32.
        k: Keys [batch, heads, keys, d], of the same dtype.
        v: Values, as k.
        causal: Whether query i sees the keys up to i only (aligned at the top left, as in torch).
        block_q: Queries per program of the grid, a power of two from 16.
        block_k: Keys per step of the loop, a power of two from 16.
        interpret: Whether Pallas interprets the kernel with XLA's operations instead of compiling it with Triton. By
            default it is compiled where JAX runs on a GPU, and interpreted elsewhere.

    Returns:
        [batch, heads, queries, d], of q's dtype.

    Raises:
        XlaError: Shapes or dtypes do not fit together, or a block is no power of two from 16.
    """
    check(q, k, v)
    check_blocks(block_q, block_k)
    if interpret is None:
        interpret = jax.default_backend() != "gpu"
    return _attention(q, k, v, causal, block_q, block_k, interpret)


def check(q: Any, k: Any, v: Any) -> None:
    """Check shapes and dtypes of queries, keys and values, as `attention` documents them.

    Raises:
        XlaError: They do not fit together.
    """
    shapes = f"q {q.shape}, k {k.shape}, v {v.shape}"
    if q.ndim != 4 or k.shape != v.shape or k.ndim != 4 or k.shape[:2] != q.shape[:2] or k.shape[3] != q.shape[3]:
        raise XlaError(
            "invalid shapes of attention",
            expected="q [batch, heads, queries, d] and k, v [batch, heads, keys, d]",
            got=shapes,
            todo="with fewer heads of keys than of queries, repeat them with jnp.repeat",
        )
    if 0 in (*q.shape, *k.shape):
        raise XlaError("attention over nothing", expected="axes of length 1 or more", got=shapes)
    dtypes = {str(array.dtype) for array in (q, k, v)}
    if len(dtypes) > 1 or not dtypes <= set(DTYPES):
        raise XlaError("invalid dtypes of attention", expected=f"one of {', '.join(DTYPES)}", got=", ".join(dtypes))


def check_blocks(block_q: int, block_k: int) -> None:
    """Check the sizes of a kernel's blocks.

    Raises:
        XlaError: One is no power of two from 16.
    """
    for name, block in (("block_q", block_q), ("block_k", block_k)):
        if block < SMALLEST_BLOCK or block & (block - 1):
            raise XlaError(f"invalid {name}", expected=f"a power of two from {SMALLEST_BLOCK}", got=block)


def key_blocks(query_block: Any, keys: int, causal: bool, block_q: int, block_k: int) -> Any:
    """Return the number of key blocks that a block of queries reads: with a causal mask, none behind its last query.

    Args:
        query_block: The block's number, from 0: an int, or a tracer in the kernel.
        keys: The number of keys.
        causal: Whether query i sees the keys up to i only.
        block_q: Queries per block.
        block_k: Keys per block.
    """
    blocks = pl.cdiv(keys, block_k)
    if not causal:
        return blocks
    visible = ((query_block + 1) * block_q + block_k - 1) // block_k
    return min(visible, blocks) if isinstance(visible, int) else jnp.minimum(visible, blocks)


@partial(jax.jit, static_argnums=(3, 4, 5, 6))
def _attention(
    q: jax.Array, k: jax.Array, v: jax.Array, causal: bool, block_q: int, block_k: int, interpret: bool
) -> jax.Array:
    batch, heads, queries, d = q.shape
    keys = k.shape[2]
    width = max(SMALLEST_BLOCK, 1 << (d - 1).bit_length())
    q = _pad(q, pl.cdiv(queries, block_q) * block_q, width)
    k, v = (_pad(array, pl.cdiv(keys, block_k) * block_k, width) for array in (k, v))
    kernel = partial(_kernel, keys=keys, scale=1 / math.sqrt(d), causal=causal, block_k=block_k)
    # `None` drops an axis from the block: a program sees [block_q, width] of one head, and all keys of that head
    rows = pl.BlockSpec((None, None, block_q, width), lambda b, h, i: (b, h, i, 0))
    whole = pl.BlockSpec((None, None, k.shape[2], width), lambda b, h, i: (b, h, 0, 0))
    result = pl.pallas_call(
        kernel,
        out_shape=jax.ShapeDtypeStruct(q.shape, q.dtype),
        grid=(batch, heads, q.shape[2] // block_q),
        in_specs=[rows, whole, whole],
        out_specs=rows,
        compiler_params=triton.CompilerParams(num_warps=4, num_stages=2),
        interpret=interpret,
        name="attention",
    )(q, k, v)
    return result[:, :, :queries, :d]


def _pad(x: jax.Array, length: int, width: int) -> jax.Array:
    return jnp.pad(x, ((0, 0), (0, 0), (0, length - x.shape[2]), (0, width - x.shape[3])))


def _kernel(
    q_ref: Any, k_ref: Any, v_ref: Any, o_ref: Any, *, keys: int, scale: float, causal: bool, block_k: int
) -> None:
    """Compute one block of the result [block_q, width] from one block of queries and all blocks of keys.

    The state of the loop, per query: the greatest score so far, the sum of exp(score - greatest), and that sum weighted
    with the values. When a greater score turns up, both sums are scaled by exp(old greatest - new greatest).
    """
    q = q_ref[...]
    block_q = q.shape[0]
    block = pl.program_id(2)
    query = block * block_q + lax.broadcasted_iota(jnp.int32, (block_q, block_k), 0)

    def step(j: Any, state: tuple[jax.Array, jax.Array, jax.Array]) -> tuple[jax.Array, jax.Array, jax.Array]:
        greatest, total, weighted = state
        rows = pl.ds(j * block_k, block_k)
        scores = _dot(q, k_ref[rows, :].T) * scale
        key = j * block_k + lax.broadcasted_iota(jnp.int32, (block_q, block_k), 1)
        visible = (key < keys) & (key <= query) if causal else key < keys
        scores = jnp.where(visible, scores, -jnp.inf)
        # key 0 is visible to all queries and in the first block, so from there on this is finite
        new_greatest = jnp.maximum(greatest, scores.max(axis=1))
        weights = jnp.exp(scores - new_greatest[:, None])
        shrink = jnp.exp(greatest - new_greatest)
        total = total * shrink + weights.sum(axis=1)
        weighted = weighted * shrink[:, None] + _dot(weights.astype(q.dtype), v_ref[rows, :])
        return new_greatest, total, weighted

    start = (
        jnp.full((block_q,), -jnp.inf, jnp.float32),
        jnp.zeros((block_q,), jnp.float32),
        jnp.zeros(q.shape, jnp.float32),
    )
    blocks = key_blocks(block, keys, causal, block_q, block_k)
    _, total, weighted = lax.fori_loop(0, blocks, step, start)
    o_ref[...] = (weighted / total[:, None]).astype(o_ref.dtype)


def _dot(a: jax.Array, b: jax.Array) -> jax.Array:
    # without `highest`, a GPU multiplies float32 with 10 bits of mantissa (TF32)
    precision = lax.Precision.HIGHEST if a.dtype == jnp.float32 else None
    return jnp.dot(a, b, precision=precision, preferred_element_type=jnp.float32)
