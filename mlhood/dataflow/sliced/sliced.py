"""The sliced convolution: any legal (k1, k2, k3), input or weight stationary, around the direct one's microkernel.

Input tiles are read in place, through a table of offsets; weights are packed so that a slice of channels of one weight
tile is contiguous. The partial sums of a pair of tiles stay in memory, tile after tile, until the last slice.
"""

from __future__ import annotations

import copy
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.dataflow.slicing.analysis import analyse, check
from mlhood.dataflow.slicing.caches import Caches, of_machine
from mlhood.dataflow.slicing.problem import Order, Problem, Slicing, counts
from mlhood.errors import SlicingError
from mlhood.kernels import parallel
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import Arguments, pack_arguments
from mlhood.kernels.codegen.direct_kernel import WEIGHT_PREFETCH
from mlhood.kernels.codegen.ir_builder import INDEX, FunctionBuilder, Int, Pointer
from mlhood.kernels.codegen.microkernel import MicrokernelSpec, Tile, candidates, microkernel
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.direct import pack_weights
from mlhood.kernels.direct_variants import PLAIN_PREFETCH
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.parallel import scratch

_STORE_CYCLES = 3  # to transpose and store one column of a tile, roughly
# counts and parts are in tiles; a task is a part of the stationary and a part of the streamed tiles
_TASKS = ("tasks", "stationary_parts", "stationary_part", "streamed_part", "stationary_count", "streamed_count")
_LOOPS = ("k2", "k3", "depth", "slice_depth")
_INPUT = ("x", "x_row", "x_tile", "x_last", "row_tiles", "last", "table")
_OUTPUT = ("out", "out_block", "out_row", "ld", "filters", "bias", "sums")
FIELDS = (*_TASKS, *_LOOPS, *_INPUT, "w", "w_block", *_OUTPUT)


def sliced_problem(g: Geometry, target: Target | None = None) -> Problem:
    """Return the slicing problem of a convolution with this processor's register tile.

    A tile's windows are in one row of the output, unless the convolution is pointwise.
    """
    tile = register_tile(g, target or host())
    return Problem(g.filters, g.channels, g.kernel, g.out, tile.rows, tile.columns, rows=g.rows[0])


def register_tile(g: Geometry, target: Target) -> Tile:
    """Return the tile that takes the fewest cycles; of almost equal ones, that with the most registers."""
    width = g.rows[1]
    costs = {
        tile: -(-width // tile.rows)
        * -(-g.filters // tile.columns)
        * (g.depth * tile.cycles + _STORE_CYCLES * tile.columns)
        for tile in candidates(target)
        if tile.rows <= width
    }
    least = min(costs.values())
    good = [tile for tile, cost in costs.items() if cost <= 1.015 * least]
    return max(good, key=lambda tile: (tile.rows * tile.vectors, -costs[tile]))


class Sliced:
    """A sliced convolution of fixed shape, with packed weights and a compiled nest.

    Args:
        g: The shapes, of one group.
        w: float32 [F, C, KH, KW].
        bias: float32 [F] or None.
        slicing: The tiles and their order; None: chosen by the analysis.
        caches: What they must fit; this machine's if None.
        target: The processor, the host if None.

    Raises:
        SlicingError: If the slicing is not legal, the convolution has more than one group, or an array does not match
            the shapes.
    """

    def __init__(
        self,
        g: Geometry,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        slicing: Slicing | None = None,
        caches: Caches | None = None,
        target: Target | None = None,
    ) -> None:
        if g.groups != 1:
            what, todo = "grouped convolutions cannot be sliced", "slice each group on its own"
            raise SlicingError(what, expected="1 group", got=f"{g.groups} groups", todo=todo)
        _check("w", w, (g.filters, g.channels, *g.kernel))
        if bias is not None:
            _check("bias", bias, (g.filters,))
        self.geometry, self.target = g, target or host()
        self.problem, self.caches = sliced_problem(g, self.target), caches or of_machine()
        self.tile = Tile(self.problem.window, self.problem.filter_tile // self.target.lanes, self.target.lanes)
        self._slice(slicing or analyse(self.problem, self.caches).slicing)
        self.weights = pack_weights(g, np.ascontiguousarray(w), self.tile.columns, self.target)
        self.bias = np.zeros(self.problem.weight_tiles * self.tile.columns, np.float32)
        if bias is not None:
            self.bias[: g.filters] = bias
        self.table = np.concatenate([g.offsets(), np.resize(g.offsets(), self._prefetch)])

    def _slice(self, slicing: Slicing) -> None:
        check(self.problem, slicing, self.caches)
        nest = NestShape(self.tile.rows, self.tile.vectors, self.geometry.stride[1], slicing.order, self._prefetch)
        self.slicing, self.kernel = slicing, jit.load(build, self.target, nest)

    @property
    def _prefetch(self) -> int:
        return PLAIN_PREFETCH if self.geometry.kernel == (1, 1) else 0

    def sliced_as(self, slicing: Slicing) -> Sliced:
        """Return the same convolution in other slices; the packed weights are shared.

        Raises:
            SlicingError: If the slicing is not legal.
        """
        other = copy.copy(self)
        other._slice(slicing)
        return other

    def __call__(self, x: np.ndarray, threads: int | None = 1) -> np.ndarray:
        """Return the convolution of x, float32 [N, C, H, W], as [N, F, OH, OW].

        Raises:
            SlicingError: If x does not match the shapes.
        """
        count, g = parallel.resolve_threads(threads), self.geometry
        _check("x", x, (g.images, g.channels, g.height, g.width))
        y, source = np.empty(g.out_shape, np.float32), _padded(g, x)
        pairs = self.problem.input_tiles * self.problem.weight_tiles
        sums = scratch("slices", pairs * self.tile.rows * self.tile.columns) if self.slicing.k1 < g.channels else y
        for image in range(g.images):
            parallel.launch(
                self.kernel, self._arguments(source[image], y[image], sums, count), (self, source, y, sums), count
            )
        return y

    def _arguments(self, x: np.ndarray, y: np.ndarray, sums: np.ndarray, threads: int) -> np.ndarray:
        g, width = self.geometry, self.geometry.rows[1]
        image, last = g.out[0] * g.out[1], width - self.tile.rows
        return pack_arguments(
            FIELDS,
            {
                **self._parts(threads),
                "k2": self.slicing.k2,
                "k3": self.slicing.k3,
                "depth": g.depth,
                "slice_depth": self.slicing.k1 * g.kernel[0] * g.kernel[1],
                "x": x.ctypes.data,
                "x_row": g.stride[0] * g.padded[1],
                "x_tile": self.tile.rows * g.stride[1],
                "x_last": last * g.stride[1],
                "row_tiles": -(-width // self.tile.rows),
                "last": last,
                "table": self.table.ctypes.data,
                "w": self.weights.ctypes.data,
                "w_block": g.depth * self.tile.columns,
                "out": y.ctypes.data,
                "out_block": self.tile.columns * image,
                "out_row": width,
                "ld": image,
                "filters": g.filters,
                "bias": self.bias.ctypes.data,
                "sums": sums.ctypes.data,
            },
        )

    def _parts(self, threads: int) -> dict[str, int]:
        """Divide the kind with more tiles among threads; each slices its part independently."""
        n_streamed, n_stationary = counts(self.problem, self.slicing.order)
        stationary_parts, streamed_parts = (threads, 1) if n_stationary >= n_streamed else (1, threads)
        stationary_part, streamed_part = -(-n_stationary // stationary_parts), -(-n_streamed // streamed_parts)
        stationary_parts, streamed_parts = -(-n_stationary // stationary_part), -(-n_streamed // streamed_part)
        return {
            "tasks": stationary_parts * streamed_parts,
            "stationary_parts": stationary_parts,
            "stationary_part": stationary_part,
            "streamed_part": streamed_part,
            "stationary_count": n_stationary,
            "streamed_count": n_streamed,
        }


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Check an array before native code reads beyond its end."""
    if array.dtype != np.float32 or array.shape != shape:
        got = f"{array.dtype} {list(array.shape)}"
        raise SlicingError(f"{name} does not match the convolution", expected=f"float32 {list(shape)}", got=got)


def _padded(g: Geometry, x: np.ndarray) -> np.ndarray:
    """Return x contiguous, with the zeros of the padding around it."""
    if not any(g.padding):
        return np.ascontiguousarray(x)
    top, left, _, _ = g.padding
    height, width = g.padded
    buffer = scratch("sliced input", g.images * g.channels * height * width)
    padded = buffer[: g.images * g.channels * height * width].reshape(g.images, g.channels, height, width)
    padded[:, :, :top] = padded[:, :, top + g.height :] = 0
    padded[:, :, :, :left] = padded[:, :, :, left + g.width :] = 0
    padded[:, :, top : top + g.height, left : left + g.width] = x
    return padded


# -- the generated code


@dataclass(frozen=True)
class NestShape:
    """What the code is specialised for.

    Args:
        rows: Windows of the register tile.
        vectors: Vectors of filters of the register tile.
        window_stride: Elements from window to window.
        order: Which kind of tile is stationary.
        prefetch: Distance in k at which the input is prefetched, 0 for none; the table is longer by as much.
    """

    rows: int
    vectors: int
    window_stride: int
    order: Order
    prefetch: int = 0


@dataclass(frozen=True)
class _Pair:
    """The operands of one microkernel call: indices of an input tile and of a weight tile."""

    input: Int
    weight: Int


def build(target: Target, nest: NestShape) -> str:
    """Return the module as LLVM IR."""
    module = ir.Module()
    tile = Tile(nest.rows, nest.vectors, target.lanes)
    shape = MicrokernelSpec(tile, nest.window_stride, a="table")
    shape = replace(shape, a_prefetch=nest.prefetch, b_prefetch=WEIGHT_PREFETCH)
    partial = microkernel(module, "partial", shape, target)
    final = microkernel(module, "final", replace(shape, bias_axis="columns", store="columns"), target)
    return _Writer(Arguments(FIELDS, module), shape.tile, partial, final, nest.order).write()


class _Writer:
    """Writes the loops around the microkernel: `partial` stores sums, `final` completes a tile."""

    def __init__(
        self,
        arguments: Arguments,
        tile: Tile,
        partial: FunctionBuilder,
        final: FunctionBuilder,
        order: Order,
    ) -> None:
        self.arguments, self.tile, self.order = arguments, tile, order
        self.code = code = arguments.code
        self.partial, self.final = partial, final
        self.field = {name: arguments.integer(name) for name in FIELDS}
        self.base = {name: arguments.pointer(name) for name in ("x", "w", "out", "bias", "sums")}
        self.null = Pointer(code.builder, ir.Constant(ir.PointerType(), None))
        self.edge = code.buffer(tile.rows * tile.columns)

    def write(self) -> str:
        """Write the function: each task processes its part of the tiles in all slices."""
        f = self.field
        with self.arguments.tasks(f["tasks"]) as task:
            first = task % f["stationary_parts"] * f["stationary_part"]
            second = task // f["stationary_parts"] * f["streamed_part"]
            stationary = first, (first + f["stationary_part"]).minimum(f["stationary_count"])
            streamed = second, (second + f["streamed_part"]).minimum(f["streamed_count"])
            with self._groups(self.code.constant(0), f["depth"], f["slice_depth"]) as (k, end):
                self._slice(k, end, stationary, streamed)
        return self.arguments.finished()

    def _slice(self, k: Int, end: Int, stationary: tuple[Int, Int], streamed: tuple[Int, Int]) -> None:
        """Process one slice of channels in groups of k3 stationary and of k2 streamed tiles."""
        f = self.field
        with (
            self._groups(*stationary, f["k3"]) as stationary_group,
            self._groups(*streamed, f["k2"]) as streamed_group,
            self.code.loop(*stationary_group) as s,
            self.code.loop(*streamed_group) as p,
        ):
            pair = _Pair(s, p) if self.order == "IS" else _Pair(p, s)
            offset = (s * f["streamed_count"] + p) * (self.tile.rows * self.tile.columns)
            self._pair(pair, k, end, self.base["sums"].at(offset))

    @contextmanager
    def _groups(self, start: Int, stop: Int, size: Int) -> Iterator[tuple[Int, Int]]:
        """Run the block for the start and the end of each group of `size` indices."""
        with self.code.loop(start, stop, size) as first:
            yield first, (first + size).minimum(stop)

    def _pair(self, pair: _Pair, k: Int, end: Int, sums: Pointer) -> None:
        f, b = self.field, self.code.builder
        row, step = pair.input // f["row_tiles"], pair.input % f["row_tiles"]
        # the last tile of a row is moved back until it is full, and computes some pixels twice
        at_end = step.equals(f["row_tiles"] - 1)
        window = self.base["x"].at(row * f["x_row"] + f["x_last"].where(at_end, step * f["x_tile"]))
        column = f["last"].where(at_end, step * self.tile.rows)
        weights = self.base["w"].at(pair.weight * f["w_block"] + k * self.tile.columns)
        begun = Pointer(b, b.select(k.equals(0), self.null.value, sums.value))
        inputs = window, weights, self.arguments.pointer("table", INDEX).at(k), end - k, begun
        with b.if_else(end < f["depth"]) as (more, last):
            with more:
                self._call(self.partial, inputs, sums, self.code.constant(self.tile.columns), self.null)
            with last:
                self._finish(inputs, pair.weight, row * f["out_row"] + column)

    def _finish(self, inputs: Any, weight: Int, offset: Int) -> None:
        """Write a tile of the result; the last weight tile may have fewer filters."""
        f, b, columns = self.field, self.code.builder, self.tile.columns
        out = self.base["out"].at(weight * f["out_block"] + offset)
        bias = self.base["bias"].at(weight * columns)
        remaining, rows = f["filters"] - weight * columns, self.code.constant(self.tile.rows)
        with b.if_else(remaining < columns) as (partial, full):
            with full:
                self._call(self.final, inputs, out, f["ld"], bias)
            with partial:
                self._call(self.final, inputs, self.edge, rows, bias)
                with self.code.loop(0, remaining) as channel:
                    for pixel in range(self.tile.rows):
                        value = self.edge.at(channel * rows + pixel).load()
                        out.at(channel * f["ld"] + pixel).store(value)

    def _call(self, callee: FunctionBuilder, inputs: Any, out: Pointer, ld: Int, bias: Pointer) -> None:
        window, weights, table, count, begun = inputs
        columns = self.code.constant(self.tile.columns)
        self.code.call(callee, window, weights, table, count, begun, columns, out, ld, bias, self.null)
