"""The command of the systolic array: SCALE-Sim's files in, its reports out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from mlhood.dataflow.systolic.array import Array, Layer
    from mlhood.dataflow.systolic.reports import Report

_COUNTS = ("inputs read", "weights read", "written", "DRAM", "energy")
_COLUMNS = ("layer", "M", "N", "K", "folds", "cycles", "use", *_COUNTS)


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("systolic")(systolic)


def systolic(
    config: Annotated[Path, typer.Option(help="SCALE-Sim's configuration: the array, its memories, its dataflow.")],
    topology: Annotated[Path, typer.Option(help="SCALE-Sim's topology: a convolution or a matrix product per row.")],
    dataflow: Annotated[str | None, typer.Option(help="ws, is or os, instead of the configuration's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False,
    reports: Annotated[
        Path | None, typer.Option(help="Folder for SCALE-Sim's COMPUTE, BANDWIDTH and DETAILED_ACCESS reports.")
    ] = None,
    version: Annotated[
        int, typer.Option(min=2, max=3, help="SCALE-Sim's version, which determines the reports' columns.")
    ] = 3,
) -> None:
    """Run layers on a systolic array: cycles, utilisation, accesses and energy, as SCALE-Sim counts them.

    Example: mlhood systolic --config scale.cfg --topology alexnet.csv --dataflow ws
    """
    from mlhood.dataflow.systolic import read_config, read_topology
    from mlhood.dataflow.systolic.files import has_user_bandwidth

    array, layers = read_config(config), read_topology(topology)
    if dataflow is not None:
        array = replace(array, dataflow=dataflow.lower())
    if reports is not None:
        _check_folder(reports)
    if has_user_bandwidth(config):
        echo("note: InterfaceBandwidth is taken as CALC; DRAM stall cycles are not modelled", err=True)
    results = list(_simulate(layers, array, version))
    if reports is not None:
        _write(results, reports)
    if as_json:
        echo(json.dumps(_as_dict(array, results), indent=2))
        return
    echo(f"{array.name}: {array.rows} x {array.columns} elements, {array.dataflow}")
    echo("\n".join(_lines(results)))


def _simulate(layers: list[Layer], array: Array, version: int) -> Iterator[Report]:
    """Yield each layer's report, with a progress bar on a terminal."""
    from mlhood.dataflow.systolic import report

    if not sys.stderr.isatty():
        yield from (report(layer, array, version) for layer in layers)
        return
    with typer.progressbar(layers, label="layers", file=sys.stderr) as bar:
        yield from (report(layer, array, version) for layer in bar)


def _lines(results: list[Report]) -> list[str]:
    from mlhood.dataflow.systolic import EYERISS

    rows = [_cells(result.layer.name, [result]) for result in results]
    rows += [_cells("all", results)] if len(results) > 1 else []
    table = [_COLUMNS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
    lines = ["  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in table]
    notes = [
        "cycles: the total; SCALE-Sim reports the index of the last cycle, which is one less (--reports, --json)",
        f"reads, writes, DRAM: words; energy: in multiply-accumulates ({EYERISS.source})",
    ]
    return [*lines, "", *notes]


def _cells(name: str, results: list[Report]) -> tuple[str, ...]:
    """Return the cells of a layer, or of the sum of several."""
    total = _total(results)
    layer = results[0].layer if len(results) == 1 else None
    sizes = [f"{size:,}" for size in (layer.m, layer.n, layer.k)] if layer else ["", "", ""]
    counted = [total[key] for key in ("ifmap_reads", "filter_reads", "ofmap_writes", "dram", "energy")]
    use = f"{total['utilisation']:.1%}"
    return (name, *sizes, f"{total['folds']:,}", f"{total['cycles']:,}", use, *(f"{value:,}" for value in counted))


def _total(results: list[Report]) -> dict[str, Any]:
    from mlhood.dataflow.systolic import energy

    keys = ("cycles", "folds", "macs", "ifmap_reads", "filter_reads", "ofmap_writes", "hops")
    total: dict[str, Any] = {key: sum(getattr(result.counts, key) for result in results) for key in keys}
    # the mean, weighted by cycles
    busy_cycles = sum(result.counts.utilisation * result.counts.cycles for result in results)
    total["utilisation"] = busy_cycles / total["cycles"]
    total["dram"] = sum(result.memories.dram for result in results)
    total["energy"] = sum(sum(energy(result.counts, result.memories).values()) for result in results)
    return total


def _as_dict(array: Array, results: list[Report]) -> dict[str, Any]:
    from mlhood.dataflow.systolic import EYERISS, energy

    layers = [
        {
            "layer": asdict(result.layer) | {"m": result.layer.m, "n": result.layer.n, "k": result.layer.k},
            "counts": asdict(result.counts),
            "memories": asdict(result.memories),
            "reports": {"COMPUTE": result.compute, "BANDWIDTH": result.bandwidth, "DETAILED_ACCESS": result.access},
            "energy": energy(result.counts, result.memories),
        }
        for result in results
    ]
    return {"array": asdict(array), "layers": layers, "total": _total(results), "energy_table": asdict(EYERISS)}


def _check_folder(folder: Path) -> None:
    from mlhood.errors import OutputError

    if not folder.is_dir():
        todo = "create it, or choose another path"
        raise OutputError("the folder for the reports does not exist", where=folder, todo=todo)


def _write(results: list[Report], folder: Path) -> None:
    from mlhood.dataflow.systolic.reports import FILES, as_csv
    from mlhood.files.atomic import write_atomic

    for name in FILES:
        path = write_atomic(folder / f"{name}_REPORT.csv", as_csv(results, name).encode())
        echo(f"written: {path}", err=True)
