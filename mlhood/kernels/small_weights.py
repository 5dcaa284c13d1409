"""Products with weights of 8 or 4 bits, for few rows, where reading the weights is what takes time.

c[m, n] = sum over g of s[n, g] a[m, g] b[g, n] + bias, and an epilogue. b is packed into panels [columns / width, k,
width] of signed bytes, or of pairs of k in a byte, the first in its low four bits, which are decoded in registers; s
into [columns / width, groups, width]. The sum of a group of k is multiplied by its scales once.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import BYTE, FLOAT, INT32, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.remainder import store_first
from mlhood.kernels.codegen.steps import Step, evaluate
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.product import ProductSizes, pack

_TASKS_PER_THREAD = 4
FIELDS = ("tasks", "chunk_panels", "panels", "m", "n", "k", "group", "a", "b", "s", "bias", "out")


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
        threads: Number of threads; any number gives the same bits.
        target: The processor; the host by default.
        epilogue: Steps on the result as their only input.

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
    options = bits, rows, sizes.m % rows, vectors, checked_steps(epilogue)
    kernel = jit.load(build, target, *options)
    keep = packed, scales, padded
    return native_call(kernel, FIELDS, values, ("a", "out"), keep=keep, name=f"int{bits}_product")


# -- the generated code


def build(target: Target, bits: int, rows: int, rest: int, vectors: int, epilogue: tuple[Step, ...] = ()) -> str:
    """Return the LLVM IR of the kernel.

    Args:
        target: The processor.
        bits: Of a weight, 8 or 4.
        rows: Rows of the register tile.
        rest: Rows that remain below the last full tile; 0 for none.
        vectors: Vector registers in one of its rows.
        epilogue: Steps that are applied to the result.
    """
    arguments, width = Arguments(FIELDS), vectors * target.lanes
    code = arguments.code
    f = {name: arguments.integer(name) for name in ("tasks", "chunk_panels", "panels", "m", "n", "k", "group")}
    pointers = {name: arguments.pointer(name) for name in ("a", "s", "bias", "out")}
    groups = (f["k"] + f["group"] - 1) // f["group"]
    with arguments.tasks(f["tasks"]) as task:
        first = task * f["chunk_panels"]
        with code.loop(first, (first + f["chunk_panels"]).minimum(f["panels"])) as panel:
            b = arguments.pointer("b", BYTE).at(panel * (f["k"] * (width * bits // 8)))
            s, column = pointers["s"].at(panel * groups * width), panel * width
            full = f["m"] - f["m"] % rows

            def tile(height: int, row: Int, b: Pointer = b, s: Pointer = s, column: Int = column) -> None:
                sums = _sums(code, f, pointers["a"].at(row * f["k"]), b, s, (bits, height, vectors, target.lanes))
                for m, vector_sums in enumerate(sums):
                    for v, value in enumerate(vector_sums):
                        place = column + v * target.lanes
                        biased = code.builder.fadd(value, pointers["bias"].at(place).load(target.lanes))
                        result = evaluate(code, epilogue, [biased], target.lanes)
                        count = (f["n"] - place).minimum(target.lanes)
                        with code.builder.if_then(code.constant(0) < count):
                            out = pointers["out"].at((row + m) * f["n"] + place)
                            store_first(code, out, result, count, target)

            with code.loop(0, full, rows) as row:
                tile(rows, row)
            if rest:
                tile(rest, full)
    return arguments.finished()


def _sums(
    code: FunctionBuilder, f: dict[str, Int], a: Pointer, b: Pointer, s: Pointer, sizes: tuple[int, int, int, int]
) -> list[list[Any]]:
    """Return the scaled sums of a tile, by row and vector."""
    bits, rows, vectors, lanes = sizes
    kind, width, together = ir.VectorType(FLOAT, lanes), vectors * lanes, 8 // bits
    zero = ir.Constant(kind, [0.0] * lanes)
    totals = [[code.variable(kind, zero) for _ in range(vectors)] for _ in range(rows)]
    sums = [[code.variable(kind, zero) for _ in range(vectors)] for _ in range(rows)]
    with code.loop(0, (f["k"] + f["group"] - 1) // f["group"]) as group:
        start = group * f["group"]
        for each in (each for row in sums for each in row):
            each.set(zero)
        with code.loop(start, (start + f["group"]).minimum(f["k"]), together) as k:
            packed = b.at(k * (width * bits // 8))
            for v in range(vectors):
                for offset, weights in enumerate(_decode(code, packed.at(v * lanes), bits, lanes)):
                    for m in range(rows):
                        x = code.splat(a.at(f["k"] * m + k + offset).load(), lanes)
                        sums[m][v].set(code.fma(x, weights, sums[m][v].get()))
        for v in range(vectors):
            scales = s.at(group * width + v * lanes).load(lanes)
            for m in range(rows):
                totals[m][v].set(code.fma(sums[m][v].get(), scales, totals[m][v].get()))
    return [[each.get() for each in row] for row in totals]


def _decode(code: FunctionBuilder, packed: Pointer, bits: int, lanes: int) -> list[Any]:
    """Return the float32 weights that are packed in a vector of bytes: of one k, or of two."""
    builder, kind = code.builder, ir.VectorType(INT32, lanes)
    integers = builder.sext(packed.load(lanes), kind)
    if bits == 4:
        low = builder.ashr(builder.shl(integers, ir.Constant(kind, [28] * lanes)), ir.Constant(kind, [28] * lanes))
        parts = [low, builder.ashr(integers, ir.Constant(kind, [4] * lanes))]
    else:
        parts = [integers]
    return [builder.sitofp(part, ir.VectorType(FLOAT, lanes)) for part in parts]
