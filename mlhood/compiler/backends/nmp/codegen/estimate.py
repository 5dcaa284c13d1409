"""Estimated cycles of many slicings at once, to choose those whose programs are worth generating."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from itertools import product
from typing import Any

import numpy as np

from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, limit, slice_bytes
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import Stage

_AXES = ("rows", "columns", "filters", "channels")
_ISSUE = 3  # instructions around each computation


def estimated_best(
    stages: Sequence[Stage],
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

    def __init__(self, stages: Sequence[Stage], machine: Machine, cuts: np.ndarray) -> None:
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

    def _transfer(self, size: Any, depth: Any, rows: Any, columns: Any, stage: Stage | None) -> Any:
        """Return the cycles of a transfer: a run for each channel, or for each row of it; one for all of an image."""
        burst = self.machine.dram.burst_bytes
        runs = depth
        if stage is not None:
            runs = np.where(columns < stage.out_width, depth * rows, depth)
            runs = np.where((rows >= stage.out_height) & (columns >= stage.out_width), 1, runs)
        bursts = size / burst + np.where(runs > 1, 0.99 * runs, 0.5)
        return np.ceil(bursts) * self.machine.dram.burst_cycles

    def _work(self, stage: Stage, pixels: Any, filters: Any, channels: Any) -> Any:
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
