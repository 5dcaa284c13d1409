"""Winograd's convolution: 3x3 with stride 1, on blocked activations, in three native calls."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.steps import Step
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.codegen.winograd_kernel import (
    INPUT_FIELDS,
    OUTPUT_FIELDS,
    WEIGHTS,
    build_input,
    build_output,
)
from mlhood.kernels.elementwise import checked_steps
from mlhood.kernels.geometry import Geometry
from mlhood.kernels.native import NativeCall, native_call
from mlhood.kernels.parallel import aligned
from mlhood.kernels.product import UNBOUNDED, Clip, ProductSizes, choose, cost, prepare

_TRANSFORM = 4  # cycles per element of a tile: loading, transforming, storing
BANDWIDTH = 4  # bytes per cycle from memory, on one core
TILES = tuple(WEIGHTS)  # widths of a tile of outputs, m


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
    clip: Clip | None = None,
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
        clip: Bounds that the result is clamped to; None for none.
        m: Width of a tile of outputs, one of `TILES`.
        chunk: Rows of tiles that go through all three calls before the next ones, so that the workspaces stay in the
            second-level cache; None for all.
        threads: Number of threads.
        target: The processor; the host by default.
        epilogue: Steps on the result as their only input, see `elementwise.prepare`; they replace the clamping.
    """
    target = target or host()
    steps = checked_steps(epilogue, 1)
    convolution = _Winograd(g, weights, bias, clip or UNBOUNDED, m, threads, target, steps)
    lines = convolution.lines
    step = min(lines, chunk or lines)
    return [call for first in range(0, lines, step) for call in convolution.calls(first, min(step, lines - first))]


class _Winograd:
    """What the calls of all chunks have in common."""

    def __init__(
        self,
        g: Geometry,
        weights: np.ndarray,
        bias: np.ndarray | None,
        clip: Clip,
        m: int,
        threads: int,
        target: Target,
        epilogue: tuple[Step, ...],
    ) -> None:
        self.geometry, self.weights, self.clip, self.m, self.epilogue = g, weights, clip, m, epilogue
        self.threads, self.target, self.lanes = threads, target, target.lanes
        self.blocks = -(-g.channels // self.lanes), -(-g.filters // self.lanes)
        self.rows, self.columns = tile_counts(g, m)
        self.lines = g.images * self.rows
        self.tile = choose(_sizes(g, m, target.lanes), target)
        self.bias = np.zeros(self.blocks[1] * self.lanes, np.float32)
        if bias is not None:
            self.bias[: g.filters] = bias

    def calls(self, first: int, lines: int) -> list[NativeCall]:
        """Return the three calls for some rows of tiles."""
        g, tiles, elements = self.geometry, lines * self.columns, (self.m + 2) ** 2
        v_ld, p_ld = self.blocks[0] * self.lanes, self.blocks[1] * self.lanes
        workspace = {"v": 4 * elements * tiles * v_ld, "p": 4 * elements * tiles * p_ld}
        before = self._tasks(first, lines, self.blocks[0], (g.height, g.width))
        before |= {"top": g.padding[0], "left": g.padding[1], "v_element": tiles * v_ld, "v_ld": v_ld}
        after = self._tasks(first, lines, self.blocks[1], g.out)
        after |= {"p_element": tiles * p_ld, "p_ld": p_ld, "bias": self.bias.ctypes.data}
        sizes = ProductSizes(tiles, p_ld, g.channels, elements)
        options = {"a_ld": v_ld, "c_ld": p_ld, "threads": self.threads, "target": self.target, "tile": self.tile}
        product = prepare(sizes, self.weights, **options)
        operands = {"v": product.operands["a"], "p": product.operands["c"]}
        kernels = [
            jit.load(build_input, self.target, self.m),
            jit.load(build_output, self.target, self.m, self.epilogue),
        ]
        floats = {"floor": self.clip[0], "ceiling": self.clip[1]}
        return [
            native_call(kernels[0], INPUT_FIELDS, before, ("x", "v"), workspace=workspace, name="winograd input"),
            NativeCall(product.kernel, product.words, operands, workspace, product.keep, "winograd product"),
            native_call(
                kernels[1],
                OUTPUT_FIELDS,
                after,
                ("p", "y", "residual", "nonfinite"),
                floats=floats,
                workspace=workspace,
                keep=(self.bias,),
                name="winograd output",
            ),
        ]

    def _tasks(self, first: int, lines: int, blocks: int, image: tuple[int, int]) -> dict[str, int]:
        plane = image[0] * image[1] * self.lanes
        tasks = {"tasks": lines * blocks, "first": first, "blocks": blocks}
        tiles = {"tile_rows": self.rows, "tile_columns": self.columns}
        return tasks | tiles | {"high": image[0], "wide": image[1], "plane": plane, "image": blocks * plane}


def _sizes(g: Geometry, m: int, lanes: int) -> ProductSizes:
    rows, columns = tile_counts(g, m)
    filters = -(-g.filters // lanes) * lanes  # what lies beyond the filters becomes zero
    return ProductSizes(g.images * rows * columns, filters, g.channels, (m + 2) ** 2)
