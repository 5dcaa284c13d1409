"""The command `mlhood bench nmp`: networks on the neural processor, by its cycle model."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Annotated, Any

import typer

from mlhood.files.terminal import echo


def bench_nmp(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...", help="lenet, resnet18, resnet50, mobilenet_v2; all by default.", show_default=False
        ),
    ] = None,
    machine: Annotated[Path | None, typer.Option(help="Machine as a TOML file; the course's by default.")] = None,
    element: Annotated[str, typer.Option(help="Type of activations and weights: int8 or int16.")] = "int8",
    sweep: Annotated[
        str | None, typer.Option(help="Also run on machines with other numbers: tilelets=1..64 in each tile, or tiles.")
    ] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw the speedup of --sweep to this file.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write everything to this file.")] = None,
) -> None:
    """Show what the search for slices gains on the neural processor: cycles of each layer, by the cycle model.

    The greedy default and the searched slices are those of each layer alone; the bound is what no program can beat. At
    last come layers that are small enough to try all slicings, with the search's distance from the best.

    Example: mlhood bench nmp lenet mobilenet_v2 --sweep tilelets=1..64 --draw scaling.svg
    """
    from mlhood.compiler import bench_nmp as bench
    from mlhood.compiler.backends.nmp.machine import default_machine, read_machine
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.graph_drawing import check_path

    if as_json is not None:
        check_output(as_json)
    if draw is not None:
        check_path(draw)
        if sweep is None:
            raise typer.BadParameter("--draw needs --sweep")
    built = default_machine() if machine is None else read_machine(machine)
    axis = None if sweep is None else bench.parse_sweep(sweep)
    echo(f"{built.name}: {built.units} tilelets, blobs of {built.blob_bytes:,} bytes, {element}")
    data: dict[str, Any] = {"bench": "nmp", "machine": built.name, "element": element, "networks": [], "gaps": []}
    scaling: dict[str, list[tuple[int, int]]] = {}
    for name in names or bench.NAMES:
        graph = bench.network_graph(name, element)
        result = bench.measure(graph, built)
        echo(f"\n{result}")
        data["networks"].append(result.as_dict())
        if axis is not None:
            points = scaling[name] = list(bench.sweep(graph, built, *axis))
            echo("\n".join(bench.sweep_lines(points)))
    echo("\nthe search beside the best of all slicings, on small layers and a machine of two tilelets")
    for name, searched, best in bench.gaps(built):
        echo(f"{name:34}{searched:>8,}{best:>8,}{searched / best - 1:>8.1%}")
        data["gaps"].append({"name": name, "searched": searched, "best": best})
    if axis is not None:
        data["scaling"] = scaling
    if draw is not None:
        from mlhood.compiler.bench_nmp_figures import scaling as draw_scaling

        drawn = io.BytesIO()
        draw_scaling(scaling).savefig(drawn, format=draw.suffix[1:].lower())
        write_atomic(draw, drawn.getvalue())
        echo(f"wrote {draw}")
    if as_json is not None:
        write_atomic(as_json, json.dumps(data, indent=2).encode())
