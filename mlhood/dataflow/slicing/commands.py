"""The command of the slicing analysis."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from mlhood.dataflow.slicing.analysis import Analysis
    from mlhood.dataflow.slicing.caches import Caches
    from mlhood.dataflow.slicing.problem import Problem
    from mlhood.dataflow.slicing.search import Found

_DIGITS = 18  # of a size; Python refuses to read thousands of them


def register(app: typer.Typer) -> None:
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
    fill: Annotated[float, typer.Option(help="Which part of each cache the tiles may take.")] = 0.9,
    line: Annotated[int, typer.Option(help="Bytes of a cache line, where caches are declared.")] = 64,
    window: Annotated[
        int | None, typer.Option(min=1, help="Windows of a register tile; this machine's if left out.")
    ] = None,
    filter_tile: Annotated[
        int | None, typer.Option(min=1, help="Filters of a register tile; this machine's if left out.")
    ] = None,
    as_json: Annotated[bool, typer.Option("--json", help="Print plain data for a program to read.")] = False,
) -> None:
    """Choose how to slice a convolution for the caches: (k1, k2, k3), and input or weights stationary.

    Example: mlhood slice --filters 256 --channels 32 --kernel 3 --output 75 --caches 32KiB,1MiB,4MiB --window 16
    --filter-tile 8
    """
    from mlhood.dataflow.slicing import analysis, search
    from mlhood.dataflow.slicing.caches import declared, of_machine
    from mlhood.dataflow.slicing.problem import Problem

    sizes = of_machine(fill) if caches.strip().lower() == "machine" else declared(caches, fill, line)
    shape = _pair(kernel, "kernel"), _pair(output, "output")
    tile = _register_tile(window, filter_tile, shape[1], filters)
    problem = Problem(filters, channels, *shape, *tile)
    found, best = analysis.analyse(problem, sizes), search.search(problem, sizes)
    typer.echo(json.dumps(as_data(found, best), indent=2) if as_json else _text(problem, sizes, found, best))


def _pair(text: str, name: str) -> tuple[int, int]:
    """Return `3` or `3x5` as two numbers."""
    from mlhood.errors import SlicingError

    parts = text.lower().split("x")
    if len(parts) > 2 or not all(part.strip().isdecimal() and len(part) <= _DIGITS for part in parts):
        raise SlicingError(f"this is no size of the {name}", expected="one number, or two: 3x5", got=text)
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


def as_data(found: Analysis, best: Found) -> dict[str, Any]:
    """Return plain data: the choice, what it takes of each cache, what is predicted, and the best that there is."""
    from mlhood.dataflow.slicing.caches import LEVELS
    from mlhood.dataflow.slicing.fit import needs

    needed = needs(found.problem, found.slicing.order, *found.slicing.tiles)
    return {
        "order": found.slicing.order,
        "k1": found.slicing.k1,
        "k2": found.slicing.k2,
        "k3": found.slicing.k3,
        "bytes": dict(zip(LEVELS, needed, strict=True)),
        "traffic": found.traffic.as_dict(),
        "gap": found.gap,
        "orders": {
            order: {"tiles": list(slicing.tiles), "traffic": traffic.as_dict()}
            for order, (slicing, traffic) in found.candidates.items()
        },
        "best": {"order": best.slicing.order, "tiles": list(best.slicing.tiles), "traffic": best.traffic.as_dict(),
                 "looked_at": best.looked_at, "behind": best.behind(found.traffic)},
        "problem": found.problem.as_dict(),
        "caches": found.caches.as_dict(),
    }  # fmt: skip


def _text(problem: Problem, caches: Caches, found: Analysis, best: Found) -> str:
    from mlhood.dataflow.slicing.caches import LEVELS
    from mlhood.dataflow.slicing.fit import needs

    lines = [f"{found.slicing.order}: k1 = {found.slicing.k1} channels, k2 = {found.slicing.k2}, "
             f"k3 = {found.slicing.k3} tiles",
             f"register tile: {problem.window} windows x {problem.filter_tile} filters; "
             f"{problem.input_tiles} input tiles, {problem.weight_tiles} weight tiles"]  # fmt: skip
    needed = needs(problem, found.slicing.order, *found.slicing.tiles)
    takes = ", ".join(f"{need:,} of {room:,} in {name}" for name, need, room in
                      zip(LEVELS, needed, caches.rooms, strict=True))  # fmt: skip
    lines.append(f"bytes: {takes} ({caches})")
    for slicing, traffic in found.candidates.values():
        lines.append(f"{slicing}: loads from L1 {traffic.l1:,}; lines from L2 {traffic.l2:,}, L3 {traffic.l3:,}, "
                     f"memory {traffic.memory:,}; {traffic.cycles:,} cycles")  # fmt: skip
    lines.append(f"the other order takes {found.gap:.2%} more cycles")
    lines.append(f"best of {best.looked_at:,} legal ones: {best.slicing}; the analysis' choice takes "
                 f"{best.behind(found.traffic):.2%} more cycles")  # fmt: skip
    return "\n".join(lines)
