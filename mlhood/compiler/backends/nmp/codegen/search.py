"""The choice of a slicing: a greedy default, and a search by the cycle model.

The search estimates the cycles of many slicings at once, generates the program of the best few, and takes that which
the cycle model finds fastest; the greedy one is among them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.codegen.convolution import layer_program
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, limit, misfits, slice_bytes
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import NmpStage
from mlhood.errors import CompilerError

_AXES = ("rows", "columns", "filters", "channels")
_ISSUE = 3  # instructions around each computation


def estimated_best(
    stages: Sequence[NmpStage],
    machine: Machine,
    axes: Sequence[Sequence[int]],
    groups: Sequence[tuple[int, int]],
    count: int,
) -> list[Slicing]:
    """Return the slicings with the least estimated cycles.

    Args:
        stages: The layer.
        machine: The machine.
        axes: The sizes to try: rows, columns, filters, channels.
        groups: The groups of filters to try, as in `Slicing`.
        count: How many ways to cut the layer to return, with half as many more of the best in all.
    """
    cuts = np.array(list(product(*axes)), np.int64)
    largest = np.max(list(slice_bytes(stages, *cuts.T).values()), axis=0)
    cuts, largest = (array[largest <= limit(machine, False)] for array in (cuts, largest))
    if not len(cuts):
        return []
    options = [
        Slicing(1, 1, 1, 1, order, tiles, tilelets, double)
        for tiles, tilelets in groups
        for order in ORDERS
        for double in (False, True)
    ]
    costs = _Costs(stages, machine, cuts)
    cycles = np.stack([costs.cycles(option) for option in options])
    doubles = np.array([option.double_buffered for option in options])
    cycles[np.ix_(doubles, largest > limit(machine, True))] = np.inf
    best, least = cycles.argmin(axis=0), cycles.min(axis=0)
    pairs = [(int(best[i]), int(i)) for i in _smallest(least, count)]
    pairs += [divmod(int(n), len(cuts)) for n in _smallest(cycles.ravel(), count // 2)]
    chosen = [pair for pair in dict.fromkeys(pairs) if np.isfinite(cycles[pair])]
    return [replace(options[n], **dict(zip(_AXES, map(int, cuts[i]), strict=True))) for n, i in chosen]


def _smallest(values: np.ndarray, count: int) -> np.ndarray:
    """Return the first `count` indices of a stable `argsort`, without sorting the others, which may be millions."""
    last = min(count, len(values) - 1)
    candidates = np.flatnonzero(values <= np.partition(values, last)[last])
    return candidates[np.argsort(values[candidates], kind="stable")][:count]


class _Costs:
    """What a slice of each way to cut a layer costs.

    Args:
        stages: The layer.
        machine: The machine.
        cuts: Rows, columns, filters and channels of the slices, int64 [ways, 4].
    """

    def __init__(self, stages: Sequence[NmpStage], machine: Machine, cuts: np.ndarray) -> None:
        self.machine, self.stages = machine, stages
        first, last = stages[0], stages[-1]
        rows, columns, filters, channels = cuts.T
        self.pixels = -(-last.out_height // rows) * -(-last.out_width // columns)
        self.filters = -(-last.filters // filters)
        self.channels = -(-first.channels // channels) if first.multiplies else np.ones_like(rows)
        sizes = slice_bytes(stages, rows, columns, filters, channels)
        depth = channels if first.multiplies else filters
        self.x = self._transfer(sizes["input"], depth, rows, columns, last)
        self.w = -(-sizes["weights"] // machine.dram.burst_bytes) * machine.dram.burst_cycles
        self.y = self._transfer(rows * columns * filters * last.element, filters, rows, columns, last)
        self.partial = self._transfer(4 * last.element * rows * columns * filters, 1, rows, columns, None)
        self.work = sum(self._work(stage, rows * columns, filters, channels) for stage in stages)

    def _transfer(self, size: Any, depth: Any, rows: Any, columns: Any, stage: NmpStage | None) -> Any:
        """Return the cycles of a transfer: a run for each channel, or for each row of it; one for all of an image."""
        burst = self.machine.dram.burst_bytes
        runs = depth
        if stage is not None:
            runs = np.where(columns < stage.out_width, depth * rows, depth)
            runs = np.where((rows >= stage.out_height) & (columns >= stage.out_width), 1, runs)
        bursts = size / burst + np.where(runs > 1, 0.99 * runs, 0.5)
        return np.ceil(bursts) * self.machine.dram.burst_cycles

    def _work(self, stage: NmpStage, pixels: Any, filters: Any, channels: Any) -> Any:
        """Return the cycles in which a tilelet computes a stage of a slice."""
        lanes = self.machine.lanes(stage.element)
        steps = pixels * -(-filters // lanes)
        if stage.kind != "dense":
            steps = np.minimum(steps, filters * -(-pixels // lanes))
        return steps * (channels if stage.multiplies else 1) * stage.window.taps + _ISSUE * self.machine.issue_cycles

    def cycles(self, option: Slicing) -> np.ndarray:
        """Return the estimated cycles of all ways to cut the layer, with the order, groups and buffers of an option."""
        groups, latency, order = option.tiles * option.tilelets, self.machine.dram.latency_cycles, option.order
        spatial = self.machine.units // groups
        i, j = -(-self.pixels // spatial), -(-self.filters // groups)
        slices, outputs = self.channels, self.pixels * self.filters
        if self.stages[0].multiplies:
            stays = (j == 1) | (order == "input") | ((order == "output") & (slices == 1))
            inputs = self.pixels * slices * np.where(stays, 1, j)
        else:
            inputs = outputs
        weights = self.filters * slices * np.where((i == 1) | (order == "weight"), 1, i)
        adds = sum(stage.kind == "add" for stage in self.stages)
        dma = inputs * self.x + weights * self.w + outputs * self.y * (1 + adds)
        if order != "output":
            dma = dma + np.where(i * j > 1, 2 * (slices - 1) * outputs, 0) * self.partial
        steps = i * j * slices
        share = dma / steps
        if option.double_buffered:
            cycles = np.maximum(dma, steps * self.work) + share + latency
        else:
            units = np.minimum(spatial, self.pixels) * np.minimum(groups, self.filters)
            cycles = steps * np.maximum(share, share / units + self.work + 2 * latency)
        if order != "output" and len(self.stages) > 1:
            cycles = np.where(slices > 1, np.inf, cycles)
        return cycles.astype(np.float64)


Stages = tuple[NmpStage, ...]
CANDIDATES = 6  # whose programs are generated
_SMALL, _MORE = 1_000_000, 8  # layers of fewer multiplications have so many times the candidates, as programs are short


@dataclass(frozen=True)
class Choice:
    """A slicing, and the cycles of its program."""

    slicing: Slicing
    cycles: int


def cycles_of(stages: Stages, slicing: Slicing, machine: Machine) -> int:
    """Return the cycles of a layer's program by the cycle model."""
    return time_program(layer_program(stages, slicing, machine)).cycles


@lru_cache(maxsize=4096)
def greedy(stages: Stages, machine: Machine) -> Choice:
    """Return the default: pixels are shared out over all tilelets, and slices are as large as fit.

    It starts with a whole row of as many filters as there are lanes, and halves input channels, then columns, then
    filters, until that fits, in half of a blob if possible; then filters and rows grow. If channels are not cut, the
    larger of weights and input stays in the tilelets.

    Raises:
        CompilerError: Not even the smallest slice fits.
    """
    first, last = stages[0], stages[-1]
    tiles, tilelets = _greedy_groups(last, machine)
    slicing = replace(_row_that_fits(stages, machine), tiles=tiles, tilelets=tilelets)
    limits = {
        "filters": ceil_div(last.filters, tiles * tilelets),
        "rows": ceil_div(last.out_height, machine.units // (tiles * tilelets)),
    }
    for name, most in limits.items():
        sizes = [size for size in _sizes(most) if size > getattr(slicing, name)]
        grown = (replace(slicing, **{name: size}) for size in sizes)
        slicing = next((each for each in grown if not misfits(stages, each, machine)), slicing)
    if slicing.channels >= first.channels:
        inputs = first.channels * first.height * first.width * first.element
        weights = first.weight_bytes(first.filters, first.channels)
        slicing = replace(slicing, order="weight" if weights > inputs else "input")
    return Choice(slicing, cycles_of(stages, slicing, machine))


def _row_that_fits(stages: Stages, machine: Machine) -> Slicing:
    """Return a row of some filters and input channels that fits."""
    first, last = stages[0], stages[-1]
    lanes = min(machine.lanes(last.element), last.filters)
    wrong = []
    for double_buffered in (True, False):
        slicing = Slicing(1, last.out_width, lanes, first.channels, double_buffered=double_buffered)
        while wrong := misfits(stages, slicing, machine):
            names = ("channels", "columns", "filters") if first.multiplies else ("columns", "filters")
            name = next((name for name in names if getattr(slicing, name) > 1), None)
            if name is None:
                break
            slicing = replace(slicing, **{name: ceil_div(getattr(slicing, name), 2)})
        if not wrong:
            return slicing
    name, size, room = wrong[0]
    what = f"not even one pixel of one filter fits a blob of {machine.name}: {name}"
    raise CompilerError(what, expected=f"at most {room:,} bytes", got=f"{size:,}", todo="use larger blobs")


def _greedy_groups(last: NmpStage, machine: Machine) -> tuple[int, int]:
    """Return the groups of filters: as few as leave a row or more to each tilelet."""
    for tiles, tilelets in sorted(groups_of(machine), key=lambda pair: pair[0] * pair[1]):
        if machine.units // (tiles * tilelets) <= max(last.out_height, 1):
            return tiles, tilelets
    return machine.tiles, machine.tilelets


@lru_cache(maxsize=4096)
def search(stages: Stages, machine: Machine) -> Choice:
    """Return the fastest slicing that was found; never slower than the greedy one.

    Raises:
        CompilerError: As for `greedy`.
    """
    best = greedy(stages, machine)
    work = sum(max(stage.macs, stage.filters * stage.out_height * stage.out_width) for stage in stages)
    count = CANDIDATES * (_MORE if work < _SMALL else 1)
    for slicing in estimated_best(stages, machine, axes(stages), groups_of(machine), count):
        cycles = cycles_of(stages, slicing, machine)
        if cycles < best.cycles:
            best = Choice(slicing, cycles)
    return best


def lower_bound(stages: Stages, machine: Machine, images: int = 1) -> int:
    """Return the cycles that no program of a layer can beat: by its multiplications, and by its compulsory traffic."""
    first, last = stages[0], stages[-1]
    macs = sum(stage.macs for stage in stages) * images
    compute = ceil_div(macs, machine.units * machine.lanes(first.element))
    weights = sum(stage.weight_bytes(stage.filters, stage.channels) for stage in stages)
    pixels = _read(first, 0) * _read(first, 1)
    size = first.element * (first.channels * pixels + last.filters * last.out_height * last.out_width)
    size += sum(s.element * s.filters * s.out_height * s.out_width for s in stages if s.kind == "add")
    bursts = ceil_div(size * images + weights, machine.dram.burst_bytes)
    return max(compute, bursts * machine.dram.burst_cycles)


def _read(stage: NmpStage, axis: int) -> int:
    """Return how many rows, or columns, of its input a stage reads."""
    window, length = stage.window, (stage.height, stage.width)[axis]
    count = (stage.out_height, stage.out_width)[axis]
    starts = (i * window.strides[axis] - window.pads[axis] for i in range(count))
    taps = range(0, window.kernel[axis] * window.dilations[axis], window.dilations[axis])
    return len({start + tap for start in starts for tap in taps} & set(range(length)))


def _sizes(length: int) -> list[int]:
    """Return the sizes that cut a length into parts of as equal a size as possible, each once, descending."""
    counts = [*range(1, min(length, 16) + 1), *(n for n in (20, 24, 28, 32, 40, 48, 56, 64, 112, 128) if n <= length)]
    return sorted({ceil_div(length, n) for n in (*counts, length)}, reverse=True)


def groups_of(machine: Machine) -> list[tuple[int, int]]:
    """Return the numbers of groups of filters that the tiles and tilelets of a machine can be divided into."""
    divisors = [[n for n in range(1, count + 1) if not count % n] for count in (machine.tiles, machine.tilelets)]
    return [(tiles, tilelets) for tiles in divisors[0] for tilelets in divisors[1]]


def axes(stages: Stages) -> tuple[list[int], list[int], list[int], list[int]]:
    """Return the sizes of slices that the search tries: rows, columns, filters, channels."""
    first, last = stages[0], stages[-1]
    channels = _sizes(first.channels) if first.multiplies else [first.channels]
    return _sizes(last.out_height), _sizes(last.out_width), _sizes(last.filters), channels
