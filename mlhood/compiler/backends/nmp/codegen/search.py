"""The choice of a slicing: a greedy default, a search by the cycle model, and all slicings for small layers.

The search estimates the cycles of many slicings at once, generates the program of the best few, and takes that which
the cycle model finds fastest; the greedy one is among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

import numpy as np

from mlhood.compiler.backends.nmp.codegen.layer_program import layer_program
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, limit, misfits, operand_bytes
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import Stage
from mlhood.errors import CompilerError

Stages = tuple[Stage, ...]
CANDIDATES = 6  # whose programs are generated
MAX_EXHAUSTIVE = 20_000


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
    """Return the default: pixels are shared out over all tilelets, and a slice is as large as fits.

    Filters come first, then rows, then columns; input channels are cut only if one pixel of one filter does not fit.

    Raises:
        CompilerError: Not even the smallest slice fits.
    """
    last = stages[-1]
    channels = stages[0].channels
    while True:
        smallest = Slicing(1, 1, 1, channels)
        if not misfits(stages, smallest, machine):
            break
        if channels == 1 or not stages[0].multiplies:
            name, size, room = misfits(stages, smallest, machine)[0]
            what = f"not even one pixel of one filter fits a blob of {machine.name}: {name}"
            raise CompilerError(what, expected=f"at most {room:,} bytes", got=f"{size:,}", todo="use larger blobs")
        channels = ceil_div(channels, 2)
    groups = _greedy_groups(last, machine)
    slicing = Slicing(1, 1, 1, channels, tiles=groups[0], tilelets=groups[1])
    spatial, filter_groups = machine.units // (groups[0] * groups[1]), groups[0] * groups[1]
    limits = {
        "filters": ceil_div(last.filters, filter_groups),
        "rows": max(1, ceil_div(last.out_height, spatial)),
        "columns": last.out_width,
    }
    for name, most in limits.items():
        sizes = [size for size in _sizes(most) if not misfits(stages, replace(slicing, **{name: size}), machine)]
        slicing = replace(slicing, **{name: max(sizes, default=1)})
    return Choice(slicing, cycles_of(stages, slicing, machine))


def _greedy_groups(last: Stage, machine: Machine) -> tuple[int, int]:
    """Return the groups of filters: as few as leave a row or more to each tilelet."""
    for tiles, tilelets in sorted(_groups(machine), key=lambda pair: pair[0] * pair[1]):
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
    for slicing in estimated_best(stages, machine, CANDIDATES):
        cycles = cycles_of(stages, slicing, machine)
        if cycles < best.cycles:
            best = Choice(slicing, cycles)
    return best


def exhaustive(stages: Stages, machine: Machine) -> Choice:
    """Return the fastest of all slicings, by the cycle model.

    Raises:
        CompilerError: There are too many, or none fits.
    """
    best: Choice | None = None
    for count, slicing in enumerate(_all(stages, machine)):
        if count > MAX_EXHAUSTIVE:
            raise CompilerError("too many slicings to try them all", expected=f"at most {MAX_EXHAUSTIVE:,}")
        cycles = cycles_of(stages, slicing, machine)
        if best is None or cycles < best.cycles:
            best = Choice(slicing, cycles)
    return best or greedy(stages, machine)


def lower_bound(stages: Stages, machine: Machine, images: int = 1) -> int:
    """Return the cycles that no program of a layer can beat: by its multiplications, and by its compulsory traffic."""
    first, last = stages[0], stages[-1]
    macs = sum(stage.macs for stage in stages) * images
    compute = ceil_div(macs, machine.units * machine.lanes(first.element))
    weights = sum(stage.weight_bytes(stage.filters, stage.channels) for stage in stages)
    size = first.element * (
        first.channels * first.height * first.width + last.filters * last.out_height * last.out_width
    )
    size += sum(s.element * s.filters * s.out_height * s.out_width for s in stages if s.kind == "add")
    bursts = ceil_div(size * images + weights, machine.dram.burst_bytes)
    return max(compute, bursts * machine.dram.burst_cycles)


def _sizes(length: int) -> list[int]:
    """Return the sizes that cut a length into parts of as equal a size as possible, each once, descending."""
    counts = [*range(1, min(length, 16) + 1), *(n for n in (20, 24, 28, 32, 40, 48, 56, 64, 112, 128) if n <= length)]
    return sorted({ceil_div(length, n) for n in (*counts, length)}, reverse=True)


def _groups(machine: Machine) -> list[tuple[int, int]]:
    """Return the numbers of groups of filters that the tiles and tilelets of a machine can be divided into."""
    divisors = [[n for n in range(1, count + 1) if not count % n] for count in (machine.tiles, machine.tilelets)]
    return list(product(*divisors))


def _axes(stages: Stages) -> tuple[list[int], list[int], list[int], list[int]]:
    first, last = stages[0], stages[-1]
    channels = _sizes(first.channels) if first.multiplies else [first.channels]
    return _sizes(last.out_height), _sizes(last.out_width), _sizes(last.filters), channels


def _all(stages: Stages, machine: Machine) -> Iterator[Slicing]:
    for rows, columns, filters, channels in product(*_axes(stages)):
        for order, (tiles, tilelets), double in product(ORDERS, _groups(machine), (False, True)):
            slicing = Slicing(rows, columns, filters, channels, order, tiles, tilelets, double)
            if not misfits(stages, slicing, machine):
                yield slicing


def estimated_best(stages: Stages, machine: Machine, count: int) -> list[Slicing]:
    """Return the slicings with the least estimated cycles, at most one for each way to cut the layer."""
    cuts = [Slicing(*cut) for cut in product(*_axes(stages))]
    sizes = np.array([max(operand_bytes(stages, cut).values()) for cut in cuts])
    fits = [cut for cut, size in zip(cuts, sizes, strict=True) if size <= limit(machine, False)]
    if not fits:
        return []
    estimates = [_estimate(stages, cut, machine) for cut in fits]
    order = np.argsort([cycles for cycles, _ in estimates], kind="stable")[:count]
    return [estimates[i][1] for i in order]


def _estimate(stages: Stages, cut: Slicing, machine: Machine) -> tuple[float, Slicing]:
    """Return the least estimated cycles of a way to cut a layer, over orders, groups and buffering."""
    first, last = stages[0], stages[-1]
    sizes = operand_bytes(stages, cut)
    burst, price = machine.dram.burst_bytes, machine.dram.burst_cycles
    pixels = ceil_div(last.out_height, cut.rows) * ceil_div(last.out_width, cut.columns)
    filters, channels = ceil_div(last.filters, cut.filters), ceil_div(first.channels, cut.channels)
    if not first.multiplies:
        channels = 1
    depth = cut.channels if first.multiplies else cut.filters
    whole_rows = last.out_width == cut.columns
    x = _runs(sizes["input"], depth if whole_rows else depth * max(cut.rows, 1), burst, first, cut) * price
    w = ceil_div(sizes["weights"], burst) * price
    out = cut.rows * cut.columns * cut.filters * last.element
    y = _runs(out, cut.filters if whole_rows else cut.filters * cut.rows, burst, last, cut) * price
    partial = (4 * first.element * cut.rows * cut.columns * cut.filters // burst + 1) * price
    adds = sum(stage.kind == "add" for stage in stages)
    work = _tile_cycles(stages, cut, machine)
    best: tuple[float, Slicing] | None = None
    fits_twice = max(sizes.values()) <= limit(machine, True)
    for (tiles, tilelets), order in product(_groups(machine), ORDERS):
        slicing = replace(cut, order=order, tiles=tiles, tilelets=tilelets)
        if order != "output" and (channels > 1 and len(stages) > 1):
            continue
        groups = tiles * tilelets
        spatial = machine.units // groups
        i, j = ceil_div(pixels, spatial), ceil_div(filters, groups)
        inputs = pixels if (order == "input" or (channels == 1 and order == "output") or j == 1) else pixels * j
        inputs *= channels
        if not first.multiplies:
            inputs = pixels * filters
        weights = filters * channels * (1 if order == "weight" or i == 1 else i)
        spills = 2 * (channels - 1) * pixels * filters if order != "output" and i * j > 1 else 0
        dma = inputs * x + weights * w + pixels * filters * y * (1 + adds) + spills * partial
        steps = i * j * channels
        compute = steps * work
        per_step = dma / steps
        units = min(spatial, pixels) * min(groups, filters)
        serial = steps * max(per_step, per_step / units + work + 2 * machine.dram.latency_cycles)
        double = max(dma, compute) + per_step + machine.dram.latency_cycles
        for cycles, buffered in ((serial, False), *(((double, True),) if fits_twice else ())):
            if best is None or cycles < best[0]:
                best = cycles, replace(slicing, double_buffered=buffered)
    return best or (float("inf"), cut)


def _runs(size: int, runs: int, burst: int, stage: Stage, cut: Slicing) -> float:
    """Return the estimated bursts of a transfer of so many bytes in so many runs."""
    if stage.kind == "dense" or (cut.rows >= stage.out_height and cut.columns >= stage.out_width):
        runs = 1
    return runs * (size / max(runs, 1) / burst + (0.99 if runs > 1 or size % burst else 0))


def _tile_cycles(stages: Stages, cut: Slicing, machine: Machine) -> int:
    """Return the cycles in which a tilelet computes a slice."""
    total = 0
    pixels = cut.rows * cut.columns
    for stage in stages:
        lanes = machine.lanes(stage.element)
        steps = min(pixels * ceil_div(cut.filters, lanes), cut.filters * ceil_div(pixels, lanes))
        if stage.kind == "dense":
            steps = pixels * ceil_div(cut.filters, lanes)
        depth = cut.channels if stage.multiplies else 1
        total += steps * depth * stage.window.taps + machine.issue_cycles * 3
    return total
