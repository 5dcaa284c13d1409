"""The choice of a slicing: a greedy default, a search by the cycle model, and all slicings for small layers.

The search estimates the cycles of many slicings at once, generates the program of the best few, and takes that which
the cycle model finds fastest; the greedy one is among them.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import lru_cache
from itertools import product

from mlhood.compiler.backends.nmp.codegen.estimate import estimated_best
from mlhood.compiler.backends.nmp.codegen.layer_program import layer_program
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, misfits
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import Stage
from mlhood.errors import CompilerError

Stages = tuple[Stage, ...]
CANDIDATES = 6  # whose programs are generated
_SMALL, _MORE = 1_000_000, 8  # layers of fewer multiplications have so many times the candidates, as programs are short
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


def _greedy_groups(last: Stage, machine: Machine) -> tuple[int, int]:
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
    pixels = _read(first, 0) * _read(first, 1)
    size = first.element * (first.channels * pixels + last.filters * last.out_height * last.out_width)
    size += sum(s.element * s.filters * s.out_height * s.out_width for s in stages if s.kind == "add")
    bursts = ceil_div(size * images + weights, machine.dram.burst_bytes)
    return max(compute, bursts * machine.dram.burst_cycles)


def _read(stage: Stage, axis: int) -> int:
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


def _all(stages: Stages, machine: Machine) -> Iterator[Slicing]:
    for rows, columns, filters, channels in product(*axes(stages)):
        cut = Slicing(rows, columns, filters, channels)
        for order in ORDERS:
            for tiles, tilelets in groups_of(machine):
                for double in (False, True):
                    slicing = replace(cut, order=order, tiles=tiles, tilelets=tilelets, double_buffered=double)
                    if not misfits(stages, slicing, machine):
                        yield slicing
