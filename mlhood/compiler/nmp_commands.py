"""What `mlhood compile --target nmp` prints and writes: what runs where, programs, and a drawing."""

from __future__ import annotations

from pathlib import Path

from mlhood.compiler.backends.nmp.cycles import Timing, time_program
from mlhood.compiler.backends.nmp.isa.assembly import disassemble
from mlhood.compiler.backends.nmp.partition_drawing import draw_partition
from mlhood.compiler.backends.nmp.runner import Heterogeneous, Plan
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import OutputError
from mlhood.files.atomic import write_atomic
from mlhood.files.terminal import echo


def write(graph: Graph, tables: bool, draw: Path | None, out: Path | None) -> None:
    """Cut a graph over the CPU and the neural processor, print what it costs, and write files.

    Args:
        graph: A quantised graph; its dynamic axes are 1 long.
        tables: Whether to print what runs where and why, and what each layer costs.
        draw: Where to draw what runs where.
        out: The folder for the programs.

    Raises:
        CompilerError: The machine cannot run the graph.
        OutputError: A file cannot be written.
    """
    runner = Heterogeneous(graph)
    open_axes = {axis for p in graph.placeholders.values() for axis in p.type.shape if isinstance(axis, str)}
    plan = runner.plan(dict.fromkeys(sorted(open_axes), 1))
    timings = _summarise(plan, tables)
    if out is not None:
        _write_programs(plan, timings, out)
    if draw is not None:
        draw_partition(plan.partition, draw)
        echo(f"wrote {draw}")


def _summarise(plan: Plan, tables: bool) -> list[Timing]:
    """Print where nodes run and what the neural processor's programs cost; return their timings."""
    echo(plan.partition)
    if tables:
        echo(plan.partition.table().round(2).to_string())
    timings = [time_program(program) for program in plan.programs]
    for timing in timings:
        machine, macs = timing.program.machine, sum(layer.macs for layer in timing.layers)
        used = macs / max(timing.cycles, 1) / (machine.units * machine.lanes(1))
        energy = sum(timing.energy.values()) / 1e6
        echo(
            f"{machine.name}: {len(timing.program.instructions):,} instructions, {timing.cycles:,} cycles "
            f"({1000 * timing.seconds:.3f} ms), {used:.1%} of the int8 peak, {timing.bytes:,} bytes, {energy:,.1f} uJ"
        )
        if tables:
            echo(timing.table().round(3).to_string())
    return timings


def _write_programs(plan: Plan, timings: list[Timing], out: Path) -> None:
    """Write each program as text, and the table of its layers."""
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError("the folder cannot be made", where=out, got=error) from error
    for number, (program, timing) in enumerate(zip(plan.programs, timings, strict=True)):
        suffix = "" if len(timings) == 1 else f"-{number + 1}"
        contents = {
            f"program{suffix}.s": disassemble(program).encode(),
            f"report{suffix}.csv": timing.table().to_csv().encode(),
        }
        for name, data in contents.items():
            write_atomic(out / name, data)
            echo(f"wrote {out / name} ({len(data):,} bytes)")
