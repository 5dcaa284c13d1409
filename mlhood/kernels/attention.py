"""Attention, softmax(scale q k^T + mask) v, in one pass over the keys and values, without a matrix of scores.

Of the keys so far the largest score, the sum of the powers and the sums of the values are kept for each query, and
multiplied by exp(old - new) when the largest score grows (T. Dao et al., "FlashAttention", NeurIPS 2022, algorithm 1).
A largest score that misses a NaN does no harm, as the power of a NaN is one, and with it the sum.

For few queries, such as a decoder's next token, a task is a query of a head; it takes as many keys at a time as a
vector has lanes (`build`). For many, as in a prefill, it is a block of queries of a head; keys and values are packed
into panels, and the products of a block of queries with a block of keys, and of its powers with the values, are those
of the microkernel (`build_blocks`).
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.errors import KernelError
from mlhood.kernels import product
from mlhood.kernels.codegen import jit, vector_math
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import MicrokernelSpec, Tile, microkernel
from mlhood.kernels.codegen.remainder import load_first, load_lanes, store_lanes
from mlhood.kernels.codegen.steps import BINARY
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.codegen.vector_math import across_lanes
from mlhood.kernels.native import NativeCall, native_call

_MOST_QUERIES = 8  # of more, the keys are packed, and read once for a block of queries
_BLOCK = 24  # queries of a block, about
_MASK = ("mask_heads", "mask_batch", "mask_head", "mask_query")
_SIZES = ("tasks", "blocks", "queries", "keys", "shared", "k_head", "v_head")
FIELDS = (*_SIZES, *_MASK, "scale", "q", "k", "v", "mask", "out")
KEYS = 128  # of a block
_LOWEST = float(np.finfo(np.float32).min)  # unlike -inf, it may be subtracted from itself


@dataclass(frozen=True)
class AttentionSizes:
    """Sizes of attention: q [heads, queries, depth], k [heads / shared, keys, depth], v [heads / shared, keys, width].

    Each head of the keys and values is that of `shared` consecutive heads of the queries.
    """

    heads: int
    queries: int
    keys: int
    depth: int
    width: int
    shared: int = 1


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
    values |= {"k_head": sizes.keys * sizes.depth, "v_head": sizes.keys * sizes.width}
    values |= {"shared": sizes.shared, "mask_heads": layout.heads, "mask_batch": layout.batch}
    values |= {"mask_head": layout.head, "mask_query": layout.query, "mask": 0}
    masks = ("mask",) if mask else ()
    options: Any = {"floats": {"scale": scale}, "name": "attention"}
    if is_few:
        kernel = jit.load(build, target, sizes.depth, sizes.width, bool(masks), causal)
        return [native_call(kernel, FIELDS, values, ("q", "k", "v", "out", *masks), **options)]
    kernel = jit.load(build_blocks, target, sizes.depth, sizes.width, tile, rows, bool(masks), causal)
    call = native_call(kernel, FIELDS, values, ("q", "k", "v", "out", *masks), **options)
    calls, operands = [], dict(call.operands)
    for name, n, k, transposed in (("k", sizes.keys, sizes.depth, True), ("v", sizes.width, sizes.keys, False)):
        packed = product.ProductSizes(0, n, k, sizes.heads // sizes.shared)
        pack = product.pack_at_run_time(packed, tile, transposed=transposed, target=target)
        size = 4 * packed.batch * -(-n // tile.columns) * tile.columns * k
        places, panels = {name: pack.operands["source"], f"{name} panels": pack.operands["out"]}, f"{name} panels"
        calls.append(replace(pack, operands=places, workspace={panels: size}))
        operands[panels] = operands.pop(name)
    return [*calls, replace(call, operands=operands)]


# -- the generated code


def _mask(arguments: Arguments, head: Int, row: Int) -> Pointer:
    """Return the first element of the mask of a query."""
    heads, batch, inner, query = (arguments.integer(name) for name in _MASK)
    return arguments.pointer("mask").at(head // heads * batch + head % heads * inner + row * query)


def build(target: Target, depth: int, width: int, masked: bool, causal: bool) -> str:
    """Return the LLVM IR of the kernel; `depth` of the keys and `width` of the values are multiples of the lanes."""
    lanes, arguments = target.lanes, Arguments(FIELDS)
    code, builder, kind = arguments.code, arguments.code.builder, ir.VectorType(FLOAT, lanes)
    queries, keys = arguments.integer("queries"), arguments.integer("keys")
    scale = code.splat(arguments.float32("scale"), lanes)
    block, zero = code.buffer(lanes), ir.Constant(kind, [0.0] * lanes)
    with arguments.tasks(arguments.integer("tasks")) as task:
        head, row = task // queries, task % queries
        group = head // arguments.integer("shared")
        k = arguments.pointer("k").at(group * arguments.integer("k_head"))
        v = arguments.pointer("v").at(group * arguments.integer("v_head"))
        mask = _mask(arguments, head, row)
        q = arguments.pointer("q").at(task * depth)
        query = [builder.fmul(q.at(i).load(lanes), scale) for i in range(0, depth, lanes)]
        largest, total = code.variable(kind, vector_math.constant(zero, _LOWEST)), code.variable(kind, zero)
        sums = [code.variable(kind, zero) for _ in range(0, width, lanes)]
        stop = (row + 1).minimum(keys) if causal else keys
        with code.loop(0, stop, lanes) as first:
            count = (stop - first).minimum(lanes)
            block.store(vector_math.constant(zero, -math.inf))
            with code.loop(0, count) as i:
                key, product = k.at((first + i) * depth), zero
                for part, each in enumerate(query):
                    product = code.fma(each, key.at(part * lanes).load(lanes), product)
                block.at(i).store(builder.extract_element(across_lanes(code, BINARY["Add"], product), INT32(0)))
            scores = block.load(lanes)
            if masked:
                scores = builder.fadd(scores, load_first(code, mask.at(first), count, lanes))
            new: Any = code.maximum(largest.get(), across_lanes(code, FunctionBuilder.maximum, scores))
            factor = vector_math.exp_of_nonpositive(code, builder.fsub(largest.get(), new))
            powers = vector_math.exp_of_nonpositive(code, builder.fsub(scores, new))
            largest.set(new)
            total.set(code.fma(total.get(), factor, powers))
            block.store(powers)
            for each in sums:
                each.set(builder.fmul(each.get(), factor))
            with code.loop(0, count) as i:
                power, value = code.splat(block.at(i).load(), lanes), v.at((first + i) * width)
                for part, each in enumerate(sums):
                    each.set(code.fma(power, value.at(part * lanes).load(lanes), each.get()))
        divisor = across_lanes(code, BINARY["Add"], total.get())
        shows_nothing = builder.fcmp_ordered("==", divisor, zero)
        for part, each in enumerate(sums):
            y = builder.select(shows_nothing, zero, builder.fdiv(each.get(), divisor))
            arguments.pointer("out").at(task * width + part * lanes).store(y)
    return arguments.finished()


def build_blocks(target: Target, depth: int, width: int, tile: Tile, rows: int, masked: bool, causal: bool) -> str:
    """Return the LLVM IR of the kernel.

    Args:
        target: The processor.
        depth: Length of a query and of a key.
        width: Length of a value.
        tile: The register tile; the panels are as wide.
        rows: Queries of a block, a multiple of the tile's rows.
        masked: Whether there is a mask.
        causal: Whether query i attends to keys 0 to i only.
    """
    module = ir.Module()
    multiply = microkernel(module, "multiply", MicrokernelSpec(tile, None, unroll=4), target)
    blocks = _Blocks(target, (depth, width), tile, rows, Arguments(FIELDS, module), multiply)
    return blocks.build(masked, causal)


class _Blocks:
    """The loops of a block of queries: it has a copy of them, scores of one block of keys, and sums of the values."""

    def __init__(
        self, target: Target, sizes: tuple[int, int], tile: Tile, rows: int, arguments: Arguments, multiply: Any
    ) -> None:
        (self.depth, self.width), self.target, self.tile, self.rows = sizes, target, tile, rows
        self.multiply, self.arguments, self.code = multiply, arguments, arguments.code
        code = self.code
        self.padded = -(-self.width // tile.columns) * tile.columns
        self.q, self.scores, self.sums = (code.buffer(rows * length) for length in (self.depth, KEYS, self.padded))
        self.largest, self.totals = code.buffer(rows), code.buffer(rows * target.lanes)
        self.kind = ir.VectorType(FLOAT, target.lanes)
        self.zero = ir.Constant(self.kind, [0.0] * target.lanes)

    def build(self, masked: bool, causal: bool) -> str:
        """Build the function."""
        code, arguments = self.code, self.arguments
        queries, keys, blocks = (arguments.integer(name) for name in ("queries", "keys", "blocks"))
        panels = (keys + (self.tile.columns - 1)) // self.tile.columns
        with arguments.tasks(arguments.integer("tasks")) as task:
            head, first = task // blocks, task % blocks * self.rows
            count = (queries - first).minimum(self.rows)
            tiles = (count + (self.tile.rows - 1)) // self.tile.rows * self.tile.rows
            group = head // arguments.integer("shared")
            k = arguments.pointer("k").at(group * panels * (self.depth * self.tile.columns))
            v = arguments.pointer("v").at(group * keys * self.padded)
            self._start(arguments.pointer("q").at((head * queries + first) * self.depth), count)
            with code.loop(0, (first + count).minimum(keys) if causal else keys, KEYS) as key:
                seen = (keys - key).minimum(KEYS)
                with code.loop(0, seen, self.tile.columns) as column:
                    panel = k.at((key + column) * self.depth)
                    with code.loop(0, tiles, self.tile.rows) as row:
                        scores = self.scores.at(row * KEYS + column)
                        self._multiply(self.q.at(row * self.depth), self.depth, panel, self.depth, None, scores, KEYS)
                with code.loop(0, count) as row:
                    stop = (first + row + 1 - key).minimum(seen) if causal else seen
                    self._powers(row, seen, stop, _mask(arguments, head, first + row).at(key) if masked else None)
                for column in range(0, self.padded, self.tile.columns):
                    panel = v.at(keys * column + key * self.tile.columns)
                    with code.loop(0, tiles, self.tile.rows) as row:
                        sums = self.sums.at(row * self.padded + column)
                        self._multiply(self.scores.at(row * KEYS), KEYS, panel, seen, sums, sums, self.padded)
            self._finish(arguments.pointer("out").at((head * queries + first) * self.width), count)
        return arguments.finished()

    def _multiply(
        self, a: Pointer, a_ld: int, b: Pointer, count: Int | int, partial: Pointer | None, out: Pointer, ld: int
    ) -> None:
        null = ir.Constant(ADDRESS, None)
        self.code.call(self.multiply, a, b, null, count, partial or null, ld, out, ld, null, null, a_ld)

    def _start(self, q: Pointer, count: Int) -> None:
        """Copy the queries, multiplied by the scale, and reset what is kept for each."""
        code, lanes = self.code, self.target.lanes
        scale = code.splat(self.arguments.float32("scale"), lanes)
        with code.loop(0, count) as row:
            for i in range(0, self.depth, lanes):
                valid = min(lanes, self.depth - i)
                query = load_lanes(code, q.at(row * self.depth + i), lanes, valid)
                scaled = code.builder.fmul(query, scale)
                store_lanes(code, self.q.at(row * self.depth + i), scaled, valid, self.target)
            self.largest.at(row).store(ir.Constant(FLOAT, _LOWEST))
            self.totals.at(row * lanes).store(self.zero)
            for i in range(0, self.padded, lanes):
                self.sums.at(row * self.padded + i).store(self.zero)

    def _powers(self, row: Int, seen: Int, stop: Int, mask: Pointer | None) -> None:
        """Replace the scores of a query by their powers, 0 from `stop` on, and multiply what was summed before."""
        code, builder, lanes = self.code, self.code.builder, self.target.lanes
        scores, sums, total = self.scores.at(row * KEYS), self.sums.at(row * self.padded), self.totals.at(row * lanes)
        old = code.splat(self.largest.at(row).load(), lanes)
        most = code.variable(self.kind, old)
        full = stop // lanes * lanes
        with code.loop(0, full, lanes) as i:
            score = scores.at(i).load(lanes)
            if mask is not None:
                score = builder.fadd(score, mask.at(i).load(lanes))
                scores.at(i).store(score)
            most.set(code.maximum(most.get(), score))
        with code.loop(full, seen, lanes) as i:
            score = load_first(code, scores.at(i), stop - i, lanes, -math.inf)
            if mask is not None:
                score = builder.fadd(score, load_first(code, mask.at(i), stop - i, lanes))
            scores.at(i).store(score)
            most.set(code.maximum(most.get(), score))
        new: Any = across_lanes(code, FunctionBuilder.maximum, most.get())
        factor = vector_math.exp_of_nonpositive(code, builder.fsub(old, new))
        self.largest.at(row).store(builder.extract_element(new, INT32(0)))
        added = code.variable(self.kind, builder.fmul(total.load(lanes), factor))
        with code.loop(0, seen, lanes) as i:
            power = vector_math.exp_of_nonpositive(code, builder.fsub(scores.at(i).load(lanes), new))
            scores.at(i).store(power)
            added.set(builder.fadd(added.get(), power))
        total.store(added.get())
        for i in range(0, self.padded, lanes):
            sums.at(i).store(builder.fmul(sums.at(i).load(lanes), factor))

    def _finish(self, out: Pointer, count: Int) -> None:
        """Write the sums, divided by the sum of the powers; 0 for queries that see nothing."""
        code, builder, lanes = self.code, self.code.builder, self.target.lanes
        with code.loop(0, count) as row:
            divisor = across_lanes(code, BINARY["Add"], self.totals.at(row * lanes).load(lanes))
            shows_nothing = builder.fcmp_ordered("==", divisor, self.zero)
            for i in range(0, self.width, lanes):
                quotient = builder.fdiv(self.sums.at(row * self.padded + i).load(lanes), divisor)
                y, valid = builder.select(shows_nothing, self.zero, quotient), min(lanes, self.width - i)
                store_lanes(code, out.at(row * self.width + i), y, valid, self.target)
