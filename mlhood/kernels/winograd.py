"""Winograd's minimal filtering for 3x3 convolutions with stride 1, on blocked activations, in three native calls.

F(m x m, 3 x 3) computes a tile of m x m outputs from t x t inputs, t = m + 2, with t^2 multiplications in place of
9 m^2: Y = A' [(G w G') * (B' d B)] A, where * is the element-wise product. Summed over channels, the products become
t^2 matrix products. (Winograd, Arithmetic Complexity of Computations, 1980; Lavin and Gray, Fast Algorithms for
Convolutional Neural Networks, CVPR 2016.)

    input     d -> v[t * t, tiles, channels]         a task transforms a row of tiles of one block of channels
    output    p[t * t, tiles, filters] -> y          with bias, residual and steps

A number that is not finite, or an overflow, reaches all results of its tile. If there is any, the word `nonfinite` is
set, and the convolution has to be computed in another way.

Channels are in the lanes: every element of a tile is a vector, and the transforms are sums of vectors.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments
from mlhood.kernels.codegen.ir_builder import FLOAT, INDEX, Int, Pointer
from mlhood.kernels.codegen.steps import Step, add_and_finish
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.parallel import aligned
from mlhood.kernels.product import ProductSizes, choose, cost, prepare

_TRANSFORM = 4  # cycles per element of a tile: loading, transforming, storing
BANDWIDTH = 4  # bytes per cycle from memory, on one core
Matrix = tuple[tuple[float, ...], ...]
# for each m: B', G and A' with the interpolation points 0, 1, -1 (m = 2), and 2, -2 in addition (m = 4)
INPUT: dict[int, Matrix] = {
    2: ((1, 0, -1, 0), (0, 1, 1, 0), (0, -1, 1, 0), (0, 1, 0, -1)),
    4: (
        (4, 0, -5, 0, 1, 0),
        (0, -4, -4, 1, 1, 0),
        (0, 4, -4, -1, 1, 0),
        (0, -2, -1, 2, 1, 0),
        (0, 2, -1, -2, 1, 0),
        (0, 4, 0, -5, 0, 1),
    ),
}
WEIGHTS: dict[int, Matrix] = {
    2: ((1, 0, 0), (1 / 2, 1 / 2, 1 / 2), (1 / 2, -1 / 2, 1 / 2), (0, 0, 1)),
    4: (
        (1 / 4, 0, 0),
        (-1 / 6, -1 / 6, -1 / 6),
        (-1 / 6, 1 / 6, -1 / 6),
        (1 / 24, 1 / 12, 1 / 6),
        (1 / 24, -1 / 12, 1 / 6),
        (0, 0, 1),
    ),
}
OUTPUT: dict[int, Matrix] = {
    2: ((1, 1, 1, 0), (0, 1, -1, -1)),
    4: ((1, 1, 1, 1, 1, 0), (0, 1, -1, 2, -2, 0), (0, 1, 1, 4, 4, 0), (0, 1, -1, 8, -8, 1)),
}
TILES = tuple(WEIGHTS)  # widths of a tile of outputs, m
_TILES = ("tasks", "first", "blocks", "tile_rows", "tile_columns", "high", "wide", "plane")
INPUT_FIELDS = (*_TILES, "x", "top", "left", "v", "v_element", "v_ld")
OUTPUT_FIELDS = (*_TILES, "p", "p_element", "p_ld", "y", "bias", "residual", "nonfinite")


def supports(g: Geometry, lanes: int) -> bool:
    """Return whether a convolution can be computed so: 3x3, stride 1, no dilation, no groups, enough channels."""
    return (
        g.kernel == (3, 3)
        and g.stride == (1, 1)
        and g.dilation == (1, 1)
        and g.groups == 1
        and min(g.channels, g.filters) >= lanes
    )


def tile_counts(g: Geometry, m: int) -> tuple[int, int]:
    """Return the rows and columns of tiles that cover the result."""
    high, wide = g.out
    return -(-high // m), -(-wide // m)


def estimated_cycles(g: Geometry, m: int, target: Target) -> float:
    """Return the estimated cycles of all three calls: transforms, and products while their weights are read."""
    sizes, elements = _sizes(g, m, target.lanes), (m + 2) ** 2
    blocks = (g.channels + g.filters) / target.lanes
    products = elements * g.channels * cost(sizes, choose(sizes, target))
    weights = 4 * elements * g.channels * g.filters / BANDWIDTH
    return max(products, weights) + _TRANSFORM * sizes.m * blocks * elements


def transform_weights(w: np.ndarray, m: int) -> np.ndarray:
    """Return G w G' of float32 [F, C, 3, 3] as float32 [t * t, C, F], computed in float64."""
    matrix = np.array(WEIGHTS[m], np.float64)
    transformed = np.einsum("ia,fcab,jb->ijcf", matrix, w.astype(np.float64), matrix, optimize=True)
    return transformed.reshape(-1, w.shape[1], w.shape[0]).astype(np.float32)


def pack_weights(g: Geometry, w: np.ndarray, m: int, target: Target | None = None) -> np.ndarray:
    """Return the transformed weights as panels, see `product.pack`: what `prepare_winograd` takes."""
    width, elements = panel_width(g, m, target or host()), (m + 2) ** 2
    panels = -(-g.filters // width)
    out = aligned(elements * panels * g.channels * width).reshape(elements, panels, g.channels, width)
    for i in range(panels):  # a panel at a time: all of the weights in float64 would be four times as large
        part = transform_weights(w[i * width : (i + 1) * width], m)
        out[:, i, :, : part.shape[2]] = part
        out[:, i, :, part.shape[2] :] = 0
    return out


def panel_width(g: Geometry, m: int, target: Target) -> int:
    """Return the width of the panels of packed weights: what their form depends on, beside m."""
    return choose(_sizes(g, m, target.lanes), target).columns


def prepare_winograd(
    g: Geometry,
    weights: np.ndarray,
    bias: np.ndarray | None = None,
    *,
    m: int,
    chunk: int | None = None,
    threads: int = 1,
    target: Target | None = None,
    epilogue: Sequence[Step] = (),
) -> list[NativeCall]:
    """Prepare a convolution of blocked activations.

    The calls run one after another. Operands: "x", "y" and optionally "residual", blocked float32, and "nonfinite",
    an int64 that is set to 1 if the result is invalid because a number was not finite; the workspaces "v" and "p" must
    keep their content from the first call to the last.

    Args:
        g: The geometry; see `supports`.
        weights: What `pack_weights` returned for the same m and target.
        bias: float32 [F] or None.
        m: Width of a tile of outputs, one of `TILES`.
        chunk: Rows of tiles that go through all three calls before the next ones, so that the workspaces stay in the
            second-level cache; None for all.
        threads: Number of threads.
        target: The processor; the host by default.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`.
    """
    target = target or host()
    lanes, elements, (rows, columns) = target.lanes, (m + 2) ** 2, tile_counts(g, m)
    blocks, images = [-(-count // lanes) for count in (g.channels, g.filters)], ((g.height, g.width), g.out)
    v_ld, p_ld = (count * lanes for count in blocks)
    padded = np.zeros(p_ld, np.float32)
    padded[: g.filters] = 0 if bias is None else bias
    tile, lines = choose(_sizes(g, m, lanes), target), g.images * rows
    transform, finish = jit.load(build_input, target, m), jit.load(build_output, target, m, checked_steps(epilogue))
    calls, step = [], min(lines, chunk or lines)
    for first in range(0, lines, step):
        count = min(step, lines - first)
        tiles, common = count * columns, {"first": first, "tile_rows": rows, "tile_columns": columns}
        workspace = {"v": 4 * elements * tiles * v_ld, "p": 4 * elements * tiles * p_ld}
        before, after = (
            common | {"tasks": count * n, "blocks": n, "high": high, "wide": wide, "plane": high * wide * lanes}
            for n, (high, wide) in zip(blocks, images, strict=True)
        )
        before |= {"top": g.padding[0], "left": g.padding[1], "v_element": tiles * v_ld, "v_ld": v_ld}
        after |= {"p_element": tiles * p_ld, "p_ld": p_ld, "bias": padded.ctypes.data}
        options: Any = {"a_ld": v_ld, "c_ld": p_ld, "threads": threads, "target": target, "tile": tile}
        product = prepare(ProductSizes(tiles, p_ld, g.channels, elements), weights, **options)
        operands = {"v": product.operands["a"], "p": product.operands["c"]}
        calls += [
            native_call(transform, INPUT_FIELDS, before, ("x", "v"), workspace=workspace, name="winograd input"),
            NativeCall(product.kernel, product.words, operands, workspace, product.keep, "winograd product"),
        ]
        options = {"workspace": workspace, "keep": (padded,), "name": "winograd output"}
        calls.append(native_call(finish, OUTPUT_FIELDS, after, ("p", "y", "residual", "nonfinite"), **options))
    return calls


def _sizes(g: Geometry, m: int, lanes: int) -> ProductSizes:
    rows, columns = tile_counts(g, m)
    filters = -(-g.filters // lanes) * lanes  # what lies beyond the filters becomes zero
    return ProductSizes(g.images * rows * columns, filters, g.channels, (m + 2) ** 2)


# -- the generated code


def build_input(target: Target, m: int) -> str:
    """Return the LLVM IR of the input's transform: x [N, C / lanes, H, W, lanes] -> v [t * t, tiles, v_ld]."""
    return _InputTransform(target, m).build()


def build_output(target: Target, m: int, epilogue: tuple[Step, ...] = ()) -> str:
    """Return the LLVM IR of the output's transform: p [t * t, tiles, p_ld] -> y [N, F / lanes, OH, OW, lanes].

    Args:
        target: The processor.
        m: Width of a tile of outputs.
        epilogue: Steps that are applied to the result.
    """
    return _OutputTransform(target, m, epilogue).build()


class _Transform:
    """What both transforms share: tasks, and the two-dimensional transform of a tile of vectors."""

    fields: tuple[str, ...]

    def __init__(self, target: Target, m: int) -> None:
        self.arguments, self.lanes, self.m, self.t = Arguments(self.fields), target.lanes, m, m + 2
        self.code = self.arguments.code
        self.field = {name: self.arguments.integer(name) for name in self.fields}

    def build(self) -> str:
        """Build the function."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            block, line = task % f["blocks"], task // f["blocks"]  # a line: a row of tiles of one image
            image, row = (line + f["first"]) // f["tile_rows"], (line + f["first"]) % f["tile_rows"]
            with self.code.loop(0, f["tile_columns"]) as column:
                index = line * f["tile_columns"] + column
                self._tile((image * f["blocks"] + block) * f["plane"], block, row, column, index)
        return self.arguments.finished()

    def _tile(self, plane: Int, block: Int, row: Int, column: Int, index: Int) -> None:
        raise NotImplementedError

    def _transform(self, matrix: Matrix, tile: list[list[Any]]) -> list[list[Any]]:
        """Return M tile M' for a tile of vectors."""
        by_column = [self._combine(matrix, list(column)) for column in zip(*tile, strict=True)]
        return [self._combine(matrix, list(row)) for row in zip(*by_column, strict=True)]

    def _combine(self, matrix: Matrix, vectors: list[Any]) -> list[Any]:
        """Return the product of a matrix and a column of vectors."""
        return [self._sum(coefficients, vectors) for coefficients in matrix]

    def _sum(self, coefficients: tuple[float, ...], vectors: list[Any]) -> Any:
        """Return a linear combination: terms with the factors 1 and -1 first, the others by fused multiply-adds."""
        builder = self.code.builder
        terms = sorted(zip(coefficients, vectors, strict=True), key=lambda term: (abs(term[0]) != 1, -term[0]))
        terms = [term for term in terms if term[0]]
        (first, total), *others = terms
        if first != 1:
            total = builder.fmul(self._constant(first), total)
        for coefficient, vector in others:
            if abs(coefficient) == 1:
                total = (builder.fadd if coefficient > 0 else builder.fsub)(total, vector)
            else:
                total = self.code.fma(self._constant(coefficient), vector, total)
        return total

    def _constant(self, value: float) -> Any:
        return ir.Constant(ir.VectorType(FLOAT, self.lanes), [float(value)] * self.lanes)


class _InputTransform(_Transform):
    fields = INPUT_FIELDS

    def _tile(self, plane: Int, block: Int, row: Int, column: Int, index: Int) -> None:
        f, b, lanes, t = self.field, self.code.builder, self.lanes, self.t
        x = self.arguments.pointer("x").at(plane)
        top, left = row * self.m - f["top"], column * self.m - f["left"]
        edge = self.code.buffer(t * t * self.lanes)
        inside = [self.code.constant(-1) < top, self.code.constant(-1) < left]
        inside += [top + (t - 1) < f["high"], left + (t - 1) < f["wide"]]
        is_inside = b.and_(b.and_(inside[0], inside[1]), b.and_(inside[2], inside[3]))
        with b.if_then(b.not_(is_inside)):
            self._copy_window(x, edge, top, left)
        source = b.select(is_inside, x.at((top * f["wide"] + left) * lanes).value, edge.value)
        ld = (f["wide"] * lanes).where(is_inside, t * lanes)
        window = Pointer(b, source)
        tile = [[window.at(ld * i + j * lanes).load(lanes) for j in range(t)] for i in range(t)]
        out = self.arguments.pointer("v").at(index * f["v_ld"] + block * lanes)
        for i, line in enumerate(self._transform(INPUT[self.m], tile)):
            for j, vector in enumerate(line):
                out.at(f["v_element"] * (i * t + j)).store(vector)

    def _copy_window(self, x: Pointer, edge: Pointer, top: Int, left: Int) -> None:
        """Copy a window to a buffer, with zeros where it lies outside of the image."""
        f, b, lanes, t = self.field, self.code.builder, self.lanes, self.t
        with self.code.loop(0, t) as i, self.code.loop(0, t) as j:
            line, pixel = top + i, left + j
            bounds = [self.code.constant(-1) < line, line < f["high"], self.code.constant(-1) < pixel]
            valid = b.and_(b.and_(bounds[0], bounds[1]), b.and_(bounds[2], pixel < f["wide"]))
            target = edge.at((i * t + j) * lanes)
            with b.if_else(valid) as (copy, zero):
                with copy:
                    target.store(x.at((line * f["wide"] + pixel) * lanes).load(lanes))
                with zero:
                    target.store(self._constant(0))


class _OutputTransform(_Transform):
    fields = OUTPUT_FIELDS

    def __init__(self, target: Target, m: int, epilogue: tuple[Step, ...]) -> None:
        super().__init__(target, m)
        self.epilogue = epilogue

    def _tile(self, plane: Int, block: Int, row: Int, column: Int, index: Int) -> None:
        f, lanes, t, m = self.field, self.lanes, self.t, self.m
        p = self.arguments.pointer("p").at(index * f["p_ld"] + block * lanes)
        tile = [[p.at(f["p_element"] * (i * t + j)).load(lanes) for j in range(t)] for i in range(t)]
        results, buffer = self._transform(OUTPUT[m], tile), self.code.buffer(m * m * self.lanes)
        for i, line in enumerate(results):
            for j, vector in enumerate(line):
                buffer.at((i * m + j) * lanes).store(vector)
        self._check_finite([vector for line in results for vector in line])
        top, left = row * m, column * m
        bias = self.arguments.pointer("bias").at(block * lanes).load(lanes)
        with (
            self.code.loop(0, (f["high"] - top).minimum(m)) as i,
            self.code.loop(0, (f["wide"] - left).minimum(m)) as j,
        ):
            pixel = plane + ((top + i) * f["wide"] + left + j) * lanes
            total = buffer.at((i * m + j) * lanes).load(lanes)
            result = add_and_finish(self.arguments, self.epilogue, total, bias, pixel)
            self.arguments.pointer("y").at(pixel).store(result)

    def _check_finite(self, vectors: list[Any]) -> None:
        """Set the word `nonfinite` if an element is infinite or NaN: times zero, only those do not give zero."""
        builder, zero = self.code.builder, self._constant(0)
        total = zero
        for vector in vectors:
            total = self.code.fma(vector, zero, total)
        lanes = builder.bitcast(builder.fcmp_unordered("uno", total, total), ir.IntType(self.lanes))
        with builder.if_then(builder.icmp_unsigned("!=", lanes, ir.IntType(self.lanes)(0)), likely=False):
            self.arguments.pointer("nonfinite", INDEX).store(INDEX(1))
