"""The sliced convolution: any legal (k1, k2, k3), input or weight stationary."""

from __future__ import annotations

import copy

import numpy as np

from mlhood.dataflow.sliced.nest_code import FIELDS, NestShape, build
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import Caches, of_machine
from mlhood.dataflow.slicing.fit import check
from mlhood.dataflow.slicing.problem import Problem, Slicing, counts
from mlhood.errors import SlicingError
from mlhood.kernels import parallel
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import pack_arguments
from mlhood.kernels.codegen.microkernel import Tile, candidates
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.direct import pack_weights
from mlhood.kernels.direct_variants import PLAIN_PREFETCH
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.parallel import scratch

_STORE_CYCLES = 3  # to transpose and store one column of a tile, roughly


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
