"""The command of the systolic array: SCALE-Sim's files in, its reports out."""

from __future__ import annotations

import json
import sys
from collections.abc import Iterator
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mlhood.dataflow.systolic.array import Array
    from mlhood.dataflow.systolic.layer import Layer
    from mlhood.dataflow.systolic.reports import Report

_COLUMNS = (
    "layer",
    "M",
    "N",
    "K",
    "folds",
    "cycles",
    "use",
    "inputs read",
    "weights read",
    "written",
    "DRAM",
    "energy",
)


def register(app: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("systolic")(systolic)


def systolic(
    config: Annotated[Path, typer.Option(help="SCALE-Sim's configuration: the array, its memories, its dataflow.")],
    topology: Annotated[Path, typer.Option(help="SCALE-Sim's topology: a convolution or a matrix product a row.")],
    dataflow: Annotated[str | None, typer.Option(help="ws, is or os, in place of the configuration's.")] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain data for a program to read.")] = False,
    reports: Annotated[
        Path | None, typer.Option(help="Write SCALE-Sim's COMPUTE, BANDWIDTH and DETAILED_ACCESS reports here.")
    ] = None,
    version: Annotated[int, typer.Option(min=2, max=3, help="Which SCALE-Sim's columns the reports have.")] = 3,
) -> None:
    """Run layers on a systolic array: cycles, utilisation, accesses and energy, as SCALE-Sim counts them.

    Example: mlhood systolic --config scale.cfg --topology alexnet.csv --dataflow ws
    """
    from mlhood.dataflow.systolic import read_config, read_topology
    from mlhood.dataflow.systolic.config import waits

    array, layers = read_config(config), read_topology(topology)
    if dataflow is not None:
        array = replace(array, dataflow=dataflow.lower())
    if reports is not None:
        _check_folder(reports)
    if waits(config):
        typer.echo("note: InterfaceBandwidth is taken as CALC; cycles of waiting for DRAM have no model", err=True)
    found = list(_follow(layers, array, version))
    if reports is not None:
        _write(found, reports)
    if as_json:
        typer.echo(json.dumps(_as_dict(array, found), indent=2))
        return
    typer.echo(f"{array.name}: {array.rows} x {array.columns} elements, {array.dataflow}")
    typer.echo("\n".join(_lines(found)))


def _follow(layers: list[Layer], array: Array, version: int) -> Iterator[Report]:
    """Yield each layer's report, with a bar on a terminal."""
    from mlhood.dataflow.systolic import report

    if not sys.stderr.isatty():
        yield from (report(layer, array, version) for layer in layers)
        return
    with typer.progressbar(layers, label="layers", file=sys.stderr) as bar:
        yield from (report(layer, array, version) for layer in bar)


def _lines(found: list[Report]) -> list[str]:
    from mlhood.dataflow.systolic import EYERISS

    rows = [_cells(one.layer.name, [one]) for one in found]
    rows += [_cells("all", found)] if len(found) > 1 else []
    table = [_COLUMNS, *rows]
    widths = [max(len(row[column]) for row in table) for column in range(len(_COLUMNS))]
    lines = ["  ".join(_justified(row, widths)) for row in table]
    notes = [
        "cycles: all of them; SCALE-Sim prints the last one's number, which is one less (--reports, --json)",
        f"reads, writes, DRAM: words; energy: in multiply-accumulates ({EYERISS.source})",
    ]
    return [*lines, "", *notes]


def _justified(row: tuple[str, ...], widths: list[int]) -> Iterator[str]:
    for number, (cell, width) in enumerate(zip(row, widths, strict=True)):
        yield cell.ljust(width) if number == 0 else cell.rjust(width)


def _cells(name: str, found: list[Report]) -> tuple[str, ...]:
    """Return the cells of a layer, or of the sum of several."""
    total = _total(found)
    alone = found[0].layer if len(found) == 1 else None
    sizes = [f"{size:,}" for size in (alone.m, alone.n, alone.k)] if alone else ["", "", ""]
    counted = [total[key] for key in ("ifmap_reads", "filter_reads", "ofmap_writes", "dram", "energy")]
    use = f"{total['utilisation']:.1%}"
    return (name, *sizes, f"{total['folds']:,}", f"{total['cycles']:,}", use, *(f"{value:,}" for value in counted))


def _total(found: list[Report]) -> dict[str, Any]:
    from mlhood.dataflow.systolic import energy

    keys = ("cycles", "folds", "macs", "ifmap_reads", "filter_reads", "ofmap_writes", "hops")
    total: dict[str, Any] = {key: sum(getattr(one.counts, key) for one in found) for key in keys}
    # macs over cycles and elements of each layer: the mean use, weighted by cycles
    total["utilisation"] = sum(one.counts.utilisation * one.counts.cycles for one in found) / total["cycles"]
    total["dram"] = sum(one.memories.dram for one in found)
    total["energy"] = sum(sum(energy(one.counts, one.memories).values()) for one in found)
    return total


def _as_dict(array: Array, found: list[Report]) -> dict[str, Any]:
    from mlhood.dataflow.systolic import EYERISS, energy

    layers = [
        {
            "layer": asdict(one.layer) | {"m": one.layer.m, "n": one.layer.n, "k": one.layer.k},
            "counts": asdict(one.counts),
            "memories": asdict(one.memories),
            "reports": {"COMPUTE": one.compute, "BANDWIDTH": one.bandwidth, "DETAILED_ACCESS": one.access},
            "energy": energy(one.counts, one.memories),
        }
        for one in found
    ]
    return {"array": asdict(array), "layers": layers, "total": _total(found), "energy_table": asdict(EYERISS)}


def _check_folder(folder: Path) -> None:
    from mlhood.errors import OutputError

    if not folder.is_dir():
        raise OutputError(
            "there is no folder to write the reports into", where=folder, todo="create it, or choose another path"
        )


def _write(found: list[Report], folder: Path) -> None:
    from mlhood.dataflow.systolic.reports import FILES, as_csv
    from mlhood.files.atomic import write_whole

    for name in FILES:
        path = write_whole(folder / f"{name}_REPORT.csv", as_csv(found, name).encode())
        typer.echo(f"written: {path}", err=True)
