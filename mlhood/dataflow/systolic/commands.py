"""The command of the systolic array: SCALE-Sim's files in, cycles, accesses and energy out."""

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
    from mlhood.dataflow.systolic.array import Array, Layer
    from mlhood.dataflow.systolic.mapping import Counts
    from mlhood.dataflow.systolic.memory import Memories

_COUNTS = ("inputs read", "weights read", "written", "DRAM", "energy")
_COLUMNS = ("layer", "M", "N", "K", "folds", "cycles", "use", *_COUNTS)


@dataclass(frozen=True)
class LayerCounts:
    """A layer with its cycles and accesses in closed form, and its simulated traffic."""

    layer: Layer
    counts: Counts
    memories: Memories


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("systolic")(systolic)


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


def _simulate(layers: list[Layer], array: Array) -> Iterator[LayerCounts]:
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
