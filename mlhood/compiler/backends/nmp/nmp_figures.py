"""Figures of the neural processor: its blocks, and when its tilelets are busy."""

from __future__ import annotations

import matplotlib.pyplot as plt
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.patches import Patch, Rectangle

from mlhood.compiler.backends.nmp.cycles import Timing
from mlhood.compiler.backends.nmp.isa.instruction import Barrier, Load, Store, Wait
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.plotting.alt_text import set_alt_text
from mlhood.plotting.diagram import BLUE, DARK, LIGHT_BLUE, LIGHT_YELLOW, ORANGE

_STYLES = {
    "computes": {"facecolor": BLUE},
    "waits": {"facecolor": LIGHT_YELLOW, "hatch": "....", "edgecolor": "#b0a060", "linewidth": 0.0},
    "load": {"facecolor": LIGHT_BLUE, "hatch": "////", "edgecolor": BLUE, "linewidth": 0.0},
    "store": {"facecolor": ORANGE},
}


def timeline(timing: Timing, layer: str | None = None) -> Figure:
    """Draw tilelets x time: when each computes and waits; above them the DMA engine's loads and stores.

    Args:
        timing: Of a program.
        layer: Name of a layer; all of them if omitted, with a line at the end of each.
    """
    program, names = timing.program, [each.name for each in timing.program.layers]
    layers = [each for each in program.layers if layer in (None, each.name)]
    first, end = (layers[0].first, layers[-1].end) if layers else (0, 0)
    machine = program.machine
    figure, axes = plt.subplots(figsize=(6.4, 1.6 + 0.12 * machine.units), layout="constrained")
    bars = _bars(timing, first, end)
    for (row, what), spans in bars.items():
        axes.broken_barh(spans, (row - 0.4, 0.8), **_STYLES[what])
    for each in layers[:-1] if len(layers) < 30 else []:
        low, high = timing.offsets[each.end - 1 : each.end + 1]
        axes.axvline(int(timing.ends[low:high].max()), color=DARK, lw=0.7)
    ticks = [-1.5, *range(0, machine.units, machine.tilelets)]
    labels = ["DMA", *(f"tile {tile}" for tile in range(machine.tiles))]
    axes.set_yticks(ticks, labels)
    axes.set(xlabel="cycle", ylim=(machine.units - 0.3, -2.6))
    keys = ("computes", "waits", "load", "store")
    handles = [Patch(label=key, **_STYLES[key]) for key in keys]
    figure.legend(handles=handles, ncols=4, loc="outside lower center")
    shown = [each for each in timing.layers if layer in (None, each.name)]
    cycles = sum(each.cycles for each in shown)
    busy = sum(each.compute_cycles for each in shown) / max(machine.units * cycles, 1)
    dma = sum(each.dma_cycles for each in shown) / max(cycles, 1)
    title = f"{layer or program.name}: {cycles:,} cycles"
    axes.set_title(title, loc="left", fontsize=11)
    return set_alt_text(
        figure,
        f"{title} of {machine.units} tilelets, which compute {busy:.0%} of the time; the DMA engine is busy {dma:.0%}.",
        f"Layers: {', '.join(names[:8])}." if layer is None else "",
    )


def _bars(timing: Timing, first: int, end: int) -> dict[tuple[float, str], list[tuple[int, int]]]:
    """Return start and length of what is drawn in each row: tilelets from 0, the DMA engine at -1.5."""
    bars: dict[tuple[float, str], list[tuple[int, int]]] = {}
    machine = timing.program.machine
    everyone = range(machine.units)
    for number in range(first, end):
        instruction = timing.program.instructions[number]
        if isinstance(instruction, Load | Store):
            start, stop = int(timing.dma_starts[number]), int(timing.dma_ends[number])
            bars.setdefault((-1.5, instruction.mnemonic), []).append((start, stop - start))
            continue
        what = "waits" if isinstance(instruction, Wait | Barrier) else "computes"
        units = getattr(instruction, "units", None)
        numbers = everyone if units is None else units.numbers(machine.tilelets)
        low, high = timing.offsets[number], timing.offsets[number + 1]
        for unit, start, stop in zip(numbers, timing.starts[low:high], timing.ends[low:high], strict=True):
            bars.setdefault((unit, what), []).append((int(start), int(stop - start)))
    return bars


def blocks(machine: Machine) -> Figure:
    """Draw the machine: DRAM, the DMA engine, and tiles of tilelets, one of which is opened."""
    figure, axes = plt.subplots(figsize=(6.4, 3.9), layout="constrained")
    axes.set(xlim=(0, 100), ylim=(0, 44))
    axes.axis("off")
    dram = machine.dram
    rate = dram.burst_bytes / dram.burst_cycles
    _box(axes, (1, 12, 14, 20), f"DRAM\n{dram.bytes / 2**30:g} GiB\nbursts of\n{dram.burst_bytes} bytes", LIGHT_YELLOW)
    _box(axes, (24, 12, 12, 20), f"DMA\nengine\n{rate:.2g} bytes\na cycle", LIGHT_BLUE)
    axes.annotate("", (24, 22), (15, 22), arrowprops={"arrowstyle": "<->", "lw": 1.6})
    shown = min(machine.tiles, 4)
    for i in range(shown):
        bottom = 33 - i * 10.6
        _box(axes, (44, bottom, 22, 9), "", "white")
        axes.text(45, bottom + 7.6, f"tile {i if i < shown - 1 else machine.tiles - 1}", fontsize=8, va="center")
        axes.annotate("", (44, bottom + 4.5), (36, 22), arrowprops={"arrowstyle": "<->", "lw": 1.0})
        count = min(machine.tilelets, 8)
        for j in range(count):
            axes.add_patch(Rectangle((45 + j * 20 / count, bottom + 1), 20 / count * 0.8, 5, fc=LIGHT_BLUE, ec=DARK))
    axes.plot([65, 72], [39, 43], color=DARK, lw=0.8)
    axes.plot([65, 72], [34, 5], color=DARK, lw=0.8)
    _box(axes, (72, 5, 27, 38), "", "white")
    axes.text(85.5, 40.5, "a tilelet", ha="center", va="center", fontsize=9)
    _box(axes, (74, 31, 23, 7), "sequencer", LIGHT_YELLOW)
    _box(axes, (74, 22, 23, 7), f"{machine.macs_per_cycle} multipliers (int8)\n{machine.lanes(2)} (int16)", LIGHT_BLUE)
    count = min(machine.blobs, 4)
    for j in range(count):
        name = f"b{j}" if j < count - 1 else f"b{machine.blobs - 1}"
        _box(axes, (74 + j * 23 / count, 8, 23 / count - 1, 12), name, "white")
    axes.text(85.5, 6.5, f"{machine.blobs} blobs of {machine.blob_bytes:,} bytes", ha="center", va="center", fontsize=8)
    return set_alt_text(
        figure,
        f"{machine.name}: {machine.tiles} tiles of {machine.tilelets} tilelets behind one DMA engine and DRAM.",
        f"Each tilelet has a sequencer, {machine.macs_per_cycle} multipliers and {machine.blobs} blobs of "
        f"{machine.blob_bytes:,} bytes.",
    )


def _box(axes: Axes, place: tuple[float, float, float, float], text: str, color: str) -> None:
    x, y, width, height = place
    axes.add_patch(Rectangle((x, y), width, height, facecolor=color, edgecolor=DARK))
    axes.text(x + width / 2, y + height / 2, text, ha="center", va="center", fontsize=9)
