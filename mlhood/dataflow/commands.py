"""The commands of the slicing analysis and of the systolic array.

The latter reads SCALE-Sim's files, and prints cycles, accesses and energy.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from mlhood.dataflow.slicing.analysis import Analysis, Optimum
    from mlhood.dataflow.systolic import Array, ArrayLayer, Counts, Memories

_MAX_DIGITS = 18  # of a size; Python refuses to parse thousands of them
_COUNTS = ("inputs read", "weights read", "written", "DRAM", "energy")
_COLUMNS = ("layer", "M", "N", "K", "folds", "cycles", "use", *_COUNTS)


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the commands to `app`."""
    app.command("slice")(slice_convolution)
    app.command("systolic")(systolic)


def slice_convolution(
    filters: Annotated[int, typer.Option(min=1, help="Filters of the convolution.")],
    channels: Annotated[int, typer.Option(min=1, help="Channels of its input.")],
    kernel: Annotated[str, typer.Option(help="The kernel's size: 3, or 3x5.")],
    output: Annotated[str, typer.Option(help="The result's size: 75, or 75x50.")],
    caches: Annotated[
        str, typer.Option(help="L1, L2 and L3, such as 32KiB,1MiB,4MiB (- for none); or `machine`.")
    ] = "machine",
    fill: Annotated[float, typer.Option(help="Fraction of each cache that tiles may occupy.")] = 0.9,
    line: Annotated[int, typer.Option(help="Bytes of a cache line, where caches are declared.")] = 64,
    window: Annotated[
        int | None, typer.Option(min=1, help="Windows of a register tile; this machine's by default.")
    ] = None,
    filter_tile: Annotated[
        int | None, typer.Option(min=1, help="Filters of a register tile; this machine's by default.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Choose how to slice a convolution for the caches: (k1, k2, k3), and input or weight stationary.

    Example: mlhood slice --filters 256 --channels 32 --kernel 3 --output 75 --caches 32KiB,1MiB,4MiB --window 16
    --filter-tile 8
    """
    from mlhood.dataflow.slicing.analysis import analyse, search
    from mlhood.dataflow.slicing.caches import declared, of_machine
    from mlhood.dataflow.slicing.problem import Problem

    sizes = of_machine(fill) if caches.strip().lower() == "machine" else declared(caches, fill, line)
    shape = _size(kernel, "kernel"), _size(output, "output")
    tile = _register_tile(window, filter_tile, shape[1], filters)
    problem = Problem(filters, channels, *shape, *tile)
    analysed, best = analyse(problem, sizes), search(problem, sizes)
    data = {"analysis": asdict(analysed), "best": asdict(best)}
    echo(json.dumps(data, indent=2) if as_json else _text(analysed, best))


def _size(text: str, name: str) -> tuple[int, int]:
    """Parse `3` or `3x5`."""
    from mlhood.errors import SlicingError

    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.strip().isdecimal() and len(part) <= _MAX_DIGITS for part in parts):
        raise SlicingError(f"invalid size of the {name}", expected="one number, or two: 3x5", got=text)
    return int(parts[0]), int(parts[-1])


def _register_tile(
    window: int | None, filter_tile: int | None, output: tuple[int, int], filters: int
) -> tuple[int, int]:
    if window is not None and filter_tile is not None:
        return window, filter_tile
    from mlhood.kernels.codegen.microkernel import cheapest
    from mlhood.kernels.codegen.target import host

    tile = cheapest(host(), max(1, output[0] * output[1]), filters)
    return window or tile.rows, filter_tile or tile.columns


def _text(analysed: Analysis, best: Optimum) -> str:
    from mlhood.dataflow.slicing.analysis import needs
    from mlhood.dataflow.slicing.caches import LEVELS

    slicing, problem, caches = analysed.slicing, analysed.problem, analysed.caches
    needed = zip(LEVELS, needs(problem, slicing.order, *slicing.tiles), caches.rooms, strict=True)
    lines = [
        f"{slicing.order}: k1 = {slicing.k1} channels, k2 = {slicing.k2}, k3 = {slicing.k3} tiles",
        f"register tile: {problem.window} windows x {problem.filter_tile} filters; "
        f"{problem.input_tiles} input tiles, {problem.weight_tiles} weight tiles",
        f"bytes: {', '.join(f'{size:,} of {capacity:,} in {name}' for name, size, capacity in needed)} ({caches})",
    ]
    lines += [
        f"{candidate}: loads from L1 {traffic.l1:,}; lines from L2 {traffic.l2:,}, L3 {traffic.l3:,}, "
        f"memory {traffic.memory:,}; {traffic.cycles:,} cycles"
        for candidate, traffic in analysed.candidates.values()
    ]
    return "\n".join(
        [
            *lines,
            f"the other order takes {analysed.gap:.2%} more cycles",
            f"best of {best.compared:,} legal slicings: {best.slicing}; the analysis' choice takes "
            f"{best.excess(analysed.traffic):.2%} more cycles",
        ]
    )


# -- the systolic array


@dataclass(frozen=True)
class LayerCounts:
    """A layer with its cycles and accesses in closed form, and its simulated traffic."""

    layer: ArrayLayer
    counts: Counts
    memories: Memories


def systolic(
    config: Annotated[Path, typer.Option(help="SCALE-Sim's configuration: the array, its memories, its dataflow.")],
    topology: Annotated[Path, typer.Option(help="SCALE-Sim's topology: a convolution or a matrix product per row.")],
    dataflow: Annotated[str | None, typer.Option(help="ws, is or os, instead of the configuration's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
) -> None:
    """Run layers on a systolic array: cycles, utilisation, accesses and energy, as SCALE-Sim counts them.

    Example: mlhood systolic --config scale.cfg --topology alexnet.csv --dataflow ws
    """
    from mlhood.dataflow.systolic import read_config, read_topology

    array, layers = read_config(config), read_topology(topology)
    if dataflow is not None:
        array = replace(array, dataflow=dataflow.lower())
    results = list(_simulate(layers, array))
    if as_json:
        layers = [asdict(result) for result in results]
        echo(json.dumps({"array": asdict(array), "layers": layers, "total": _total(results)}, indent=2))
        return
    echo(f"{array.name}: {array.rows} x {array.columns} elements, {array.dataflow}")
    echo("\n".join(_lines(results)))


def _simulate(layers: list[ArrayLayer], array: Array) -> Iterator[LayerCounts]:
    """Yield each layer's result, with a progress bar on a terminal."""
    from mlhood.dataflow.systolic import count, simulate_memories

    with typer.progressbar(layers, label="layers", file=sys.stderr, hidden=not sys.stderr.isatty()) as bar:
        yield from (LayerCounts(layer, count(layer, array), simulate_memories(layer, array)) for layer in bar)


def _lines(results: list[LayerCounts]) -> list[str]:
    from mlhood.dataflow.systolic import ENERGY_SOURCE

    rows = [_cells(result.layer.name, [result]) for result in results]
    rows += [_cells("all", results)] if len(results) > 1 else []
    table = [_COLUMNS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
    notes = [
        "DRAM never stalls the array, as with InterfaceBandwidth: CALC",
        "cycles: the total; SCALE-Sim reports the index of the last cycle, which is one less",
        f"reads, writes, DRAM: words; energy: in multiply-accumulates ({ENERGY_SOURCE})",
    ]
    return [*lines, "", *notes]


def _cells(name: str, results: list[LayerCounts]) -> tuple[str, ...]:
    """Return the cells of a layer, or of the sum of several."""
    total = _total(results)
    layer = results[0].layer if len(results) == 1 else None
    sizes = [f"{size:,}" for size in (layer.m, layer.n, layer.k)] if layer else ["", "", ""]
    counted = [total[key] for key in ("ifmap_reads", "filter_reads", "ofmap_writes", "dram", "energy")]
    use = f"{total['utilisation']:.1%}"
    return (name, *sizes, f"{total['folds']:,}", f"{total['cycles']:,}", use, *(f"{value:,}" for value in counted))


def _total(results: list[LayerCounts]) -> dict[str, Any]:
    from mlhood.dataflow.systolic import energy

    keys = ("cycles", "folds", "macs", "ifmap_reads", "filter_reads", "ofmap_writes", "hops")
    total: dict[str, Any] = {key: sum(getattr(result.counts, key) for result in results) for key in keys}
    # the mean, weighted by cycles
    busy_cycles = sum(result.counts.utilisation * result.counts.cycles for result in results)
    total["utilisation"] = busy_cycles / total["cycles"]
    total["dram"] = sum(result.memories.dram for result in results)
    total["energy"] = sum(sum(energy(result.counts, result.memories).values()) for result in results)
    return total
