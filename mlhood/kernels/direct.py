"""The direct convolution: a plan for one shape, made once, and run as often as there are inputs."""

from __future__ import annotations

import functools
import math

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import parallel
from mlhood.kernels.codegen import jit, packing
from mlhood.kernels.codegen.arguments import fill, place_of
from mlhood.kernels.codegen.direct_kernel import FIELDS, Variant, build
from mlhood.kernels.codegen.microkernel import Tile, candidates
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.geometry import Geometry, Pair, geometry
from mlhood.kernels.layout import Layout, stored_shape
from mlhood.kernels.memory import aligned, scratch

Clip = tuple[float, float]

_WEIGHT_BYTES = 256 * 1024  # what a task reads again for each tile: together with the input, a second-level cache
_TASK_TILES = 28
_TASKS_OF_A_THREAD = 12
_PADS_OF_A_THREAD = 4
_ADDRESSES = ("source", "x", "out", "scratch", "residual")


@functools.lru_cache(maxsize=256)
def choose(g: Geometry, target: Target, reads: Layout = "plain", writes: Layout = "plain") -> Variant:
    """Return the variant that takes the fewest cycles; of almost equal ones, that with the most registers."""
    options = _channel_options(g, target, reads, writes)
    if (reads, writes) == ("plain", "plain"):
        options += _pixel_options(g, target)
    least = min(cost for cost, _ in options)
    good = [(cost, variant) for cost, variant in options if cost <= 1.015 * least]
    return max(good, key=lambda option: (option[1].rows * option[1].vectors, -option[0]))[1]


def _channel_options(g: Geometry, target: Target, reads: Layout, writes: Layout) -> list[tuple[float, Variant]]:
    high, wide = g.rows
    filters, blocked = g.filters // g.groups, writes == "blocked"
    spread = g.stride[1] * _piece(reads, target)
    ahead = _ahead(g, reads, target)
    return [
        (high * -(-wide // tile.rows) * -(-filters // tile.columns)
         * (g.depth * tile.cycles + (0 if blocked else _transposing(tile))),
         Variant(tile.rows, tile.vectors, spread, blocked=blocked, ahead=ahead))
        for tile in candidates(target)
        if tile.rows <= wide
    ]  # fmt: skip


def _ahead(g: Geometry, reads: Layout, target: Target) -> int:
    """Return how many k ahead the input is fetched: about what memory takes; a larger window's rows are there already.

    Blocked, the next k that needs new cache lines is a whole block away.
    """
    if reads == "blocked":
        return 4 * target.lanes
    return 2 * target.lanes if g.kernel == (1, 1) else 0


def _pixel_options(g: Geometry, target: Target) -> list[tuple[float, Variant]]:
    high, wide = g.out
    filters = g.filters // g.groups
    return [
        (high * -(-wide // tile.columns) * filters / tile.rows * g.depth * _gather_cycles(tile, g.stride[1]),
         Variant(tile.rows, tile.vectors, g.stride[1], "pixels", valid=min(wide, tile.columns)))
        for tile in candidates(target)
        if filters % tile.rows == 0 and (tile.vectors - 1) * target.lanes < wide
    ]  # fmt: skip


def _transposing(tile: Tile) -> int:
    """Return roughly the cycles in which a tile is transposed and written: shuffles and a store for each column."""
    return 3 * tile.columns


def _gather_cycles(tile: Tile, spread: int) -> float:
    extra = {1: 0, 2: 1}.get(spread, tile.lanes)
    return tile.cycles + tile.vectors * extra


def _piece(layout: Layout, target: Target) -> int:
    """Return how many of a pixel's channels are neighbours."""
    return target.lanes if layout == "blocked" else 1


class Direct:
    """A convolution ready to run: its weights are packed, its loops compiled.

    Args:
        g: The sizes.
        w: float32 [F, C / groups, KH, KW].
        bias: float32 [F] or None.
        clip: Smallest and largest result, (0, inf) for ReLU; None for no limits.
        target: The processor, the host if None.
        variant: The kernel, the cheapest for these layouts if None.
        reads: Layout of the input; blocked by the target's lanes.
        writes: Layout of the result and of what is added to it.
        threads: How many pack the weights.

    Raises:
        KernelError: If w or bias does not fit or has gaps, if blocks of channels would belong to two groups, or if the
            variant is for other layouts.
    """

    def __init__(
        self,
        g: Geometry,
        w: np.ndarray,
        bias: np.ndarray | None = None,
        clip: Clip | None = None,
        target: Target | None = None,
        variant: Variant | None = None,
        *,
        reads: Layout = "plain",
        writes: Layout = "plain",
        threads: int = 1,
    ) -> None:
        self.geometry, self.target = g, target or host()
        lanes = self.target.lanes
        inside = (g.images, g.channels, g.height, g.width)
        self.shapes = stored_shape(inside, reads, lanes), stored_shape(g.out_shape, writes, lanes)
        self.reads: Layout = reads
        self.writes: Layout = writes
        _check_groups(g, reads, writes, lanes)
        _check("w", w, (g.filters, g.channels // g.groups, *g.kernel))
        if bias is not None:
            _check("bias", bias, (g.filters,))
        self.variant = variant or choose(g, self.target, reads, writes)
        self._check_variant()
        self.floor, self.ceiling = clip or (-math.inf, math.inf)
        tile = Tile(self.variant.rows, self.variant.vectors, self.target.lanes)
        by_channel = self.variant.lanes == "channels"
        self.width, self.pixels = (tile.columns, tile.rows) if by_channel else (tile.rows, tile.columns)
        self.kernel = jit.load(build, self.target, self.variant)
        self.rows = g.rows if by_channel else g.out
        self.copies = any(g.padding) or not by_channel
        # pixels in the lanes: a vector reads beyond the last pixel, and does not use what it finds there
        slack = 0 if by_channel else self.pixels * g.stride[1] * 2
        self.padded = math.prod(stored_shape((g.images, g.channels, *g.padded), reads, lanes)) + slack
        high, wide = self.rows
        self.tiles, self.blocks = high * -(-wide // self.pixels), -(-(g.filters // g.groups) // self.width)
        stretches = -(-g.depth * self.width * 4 // _WEIGHT_BYTES)
        self.depth = -(-g.depth // stretches)
        self.templates: dict[int, np.ndarray] = {}
        self.places = [place_of(FIELDS, name) for name in _ADDRESSES]
        self.table = _table(g, _piece(reads, self.target), self.variant, self.pixels)
        self.weights = pack_weights(g, w, self.width, self.target, parallel.checked(threads))
        self.bias = None if bias is None else _padded_bias(g, bias, self.width)

    def __call__(
        self,
        x: np.ndarray,
        residual: np.ndarray | None = None,
        out: np.ndarray | None = None,
        threads: int | None = None,
    ) -> np.ndarray:
        """Return the convolution of x, float32 [N, C, H, W] without gaps, as [N, F, OH, OW]; or as the layouts say.

        In a blocked result, what the last block has beyond the channels has no meaning.

        Args:
            x: The input.
            residual: Added to the result before the limits apply; of its shape.
            out: Where the result goes, if memory is there already; neither x nor residual.
            threads: How many; None: what `parallel.threads` says.
        """
        count = parallel.checked(threads)
        out = np.empty(self.shapes[1], np.float32) if out is None else out
        _check("x", x, self.shapes[0])
        _check("out", out, self.shapes[1])
        if residual is not None:
            _check("residual", residual, self.shapes[1])
        padded = scratch("padded", self.padded) if self.copies else x
        sums = scratch("sums", count * self._sums(count)) if self.depth < self.geometry.depth else out
        plan = self._template(count).copy()
        addresses = (x, padded, out, sums, residual)
        plan[self.places] = [0 if one is None else one.__array_interface__["data"][0] for one in addresses]
        parallel.run(self.kernel, plan, (self, *addresses), count)
        return out

    def _check_variant(self) -> None:
        variant, wanted = self.variant, self.geometry.stride[1] * _piece(self.reads, self.target)
        if (variant.spread, variant.blocked) != (wanted, self.writes == "blocked"):
            raise KernelError("the variant is for another convolution",
                              expected=f"spread {wanted}, blocked {self.writes == 'blocked'}", got=variant)  # fmt: skip

    def _sums(self, threads: int) -> int:
        """Return how many sums a thread keeps of a task that goes through the depth in stretches."""
        return self._chunk(threads) * self.pixels * self.width

    def _template(self, threads: int) -> np.ndarray:
        """Return the plan, in which only the addresses of one call are missing."""
        if threads not in self.templates:
            self.templates[threads] = self._make_template(threads)
        return self.templates[threads]

    def _make_template(self, threads: int) -> np.ndarray:
        g, wide = self.geometry, self.rows[1]
        piece, out_piece = _piece(self.reads, self.target), _piece(self.writes, self.target)
        step, padded_wide = g.stride[1] * piece, g.padded[1] * piece
        plane, image = g.padded[0] * g.padded[1], g.out[0] * g.out[1]
        chunk, last = self._chunk(threads), max(0, wide - self.pixels)
        chunks = -(-self.tiles // chunk)
        planes = math.prod(self.shapes[0][:2])
        pads = min(planes, 1 if threads == 1 else _PADS_OF_A_THREAD * threads) if self.copies else 0
        values = {
            "tasks": pads + g.images * g.groups * self.blocks * chunks, "pads": pads, "planes": planes,
            "high": g.height, "wide": g.width * piece, "padded_high": g.padded[0], "padded_wide": padded_wide,
            "top": g.padding[0], "left": g.padding[1] * piece, "blocks": self.blocks, "chunks": chunks,
            "groups": g.groups, "chunk": chunk, "tiles": self.tiles, "row_tiles": -(-wide // self.pixels), "last": last,
            "x_image": self.shapes[0][1] * piece * plane, "x_group": g.channels // g.groups * plane,
            "x_row": g.stride[0] * padded_wide, "x_tile": self.pixels * step, "x_last": last * step,
            "w": self.weights.ctypes.data, "w_block": g.depth * self.width, "table": self.table.ctypes.data,
            "count": g.depth, "depth": self.depth, "filters": g.filters // g.groups,
            "out_image": self.shapes[1][1] * out_piece * image, "out_group": g.filters // g.groups * image,
            "out_block": self.width * image, "out_row": wide * out_piece, "ld": image * out_piece,
            "bias": 0 if self.bias is None else self.bias.ctypes.data,
            "chunk_inner": int(g.depth * self.width * 4 * self.blocks > _WEIGHT_BYTES),
        }  # fmt: skip
        values |= dict.fromkeys(_ADDRESSES, 0)
        return fill(FIELDS, values, {"floor": self.floor, "ceiling": self.ceiling})

    def _chunk(self, threads: int) -> int:
        """Return the tiles of a task: few enough that all threads end at about the same time."""
        parts = self.geometry.images * self.geometry.groups * self.blocks
        wanted = -(-threads * _TASKS_OF_A_THREAD // parts) if threads > 1 else 1
        return max(1, min(_TASK_TILES, -(-self.tiles // wanted)))


def prepare(
    shape: tuple[int, ...],
    w: np.ndarray,
    bias: np.ndarray | None = None,
    stride: Pair = 1,
    padding: Pair = 0,
    *,
    dilation: Pair = 1,
    groups: int = 1,
    clip: Clip | None = None,
) -> Direct:
    """Make a convolution ready for inputs of one shape: pack its weights, compile its loops.

    Args:
        shape: [N, C, H, W] of the inputs.
        w: float32 [F, C / groups, KH, KW].
        bias: float32 [F], or None.
        stride: One number, or down and right.
        padding: One number, (down, right) for both sides, or (top, left, bottom, right).
        dilation: One number, or down and right.
        groups: Parts that channels and filters fall into.
        clip: Smallest and largest result, None for no limits.

    Raises:
        KernelError: If the arguments do not fit together.
    """
    g = geometry(shape, w.shape, stride, padding, dilation, groups)
    return Direct(g, np.ascontiguousarray(w), None if bias is None else np.ascontiguousarray(bias), clip)


def _check(name: str, array: np.ndarray, shape: tuple[int, ...]) -> None:
    """Refuse what native code would read or write beyond its end."""
    if array.dtype == np.float32 and array.shape == shape and array.flags.c_contiguous:
        return
    got = f"{array.dtype} {list(array.shape)}{'' if array.flags.c_contiguous else ', with gaps'}"
    raise KernelError(f"{name} does not fit the convolution", expected=f"float32 {list(shape)}, without gaps", got=got)


def _check_groups(g: Geometry, reads: Layout, writes: Layout, lanes: int) -> None:
    """Refuse groups that begin in the middle of a block."""
    for what, layout, count in (("input", reads, g.channels), ("result", writes, g.filters)):
        if layout == "blocked" and g.groups > 1 and count // g.groups % lanes:
            raise KernelError(f"the groups do not fit into the blocked {what}",
                              expected=f"a multiple of {lanes} channels a group", got=count // g.groups,
                              todo=f"keep the {what} plain")  # fmt: skip


@functools.lru_cache(maxsize=256)
def _table(g: Geometry, piece: int, variant: Variant, pixels: int) -> np.ndarray:
    """Return how far from a window's first element the number for each k lies; `piece` channels are neighbours.

    What is fetched ahead of the last k is what the next tile begins with.
    """
    table = g.distances(piece)
    return np.concatenate([table, np.resize(table, variant.ahead) + pixels * variant.spread])


def pack_weights(g: Geometry, w: np.ndarray, width: int, target: Target, threads: int = 1) -> np.ndarray:
    """Return the weights as [groups, blocks, k, width], with zeros where the last block of a group is not full."""
    filters = g.filters // g.groups
    blocks = -(-filters // width)
    out = aligned(g.groups * blocks * g.depth * width)
    plan = fill(packing.FIELDS, {
        "tasks": g.groups * blocks, "blocks": blocks, "source": w.ctypes.data, "group": filters * g.depth,
        "ld": g.depth, "count": filters, "depth": g.depth, "out": out.ctypes.data,
    })  # fmt: skip
    parallel.run(jit.load(packing.build, target, width, True), plan, (w, out), threads)
    return out


def _padded_bias(g: Geometry, bias: np.ndarray, width: int) -> np.ndarray:
    filters = g.filters // g.groups
    full = np.zeros((g.groups, -(-filters // width) * width), np.float32)
    full[:, :filters] = bias.reshape(g.groups, filters)
    return full
