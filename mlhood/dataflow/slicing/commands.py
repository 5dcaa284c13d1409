"""The command of the slicing analysis."""

from __future__ import annotations

import json
from dataclasses import asdict
from typing import TYPE_CHECKING, Annotated

import typer

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from mlhood.dataflow.slicing.analysis import Analysis, Optimum

_MAX_DIGITS = 18  # of a size; Python refuses to parse thousands of them


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command("slice")(slice_convolution)


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
    from mlhood.dataflow.slicing.caches import LEVELS
    from mlhood.dataflow.slicing.fit import needs

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
