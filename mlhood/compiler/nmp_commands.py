"""What `mlhood compile --target nmp` prints and writes: what runs where, programs, a timeline and a drawing."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from mlhood.compiler.backends.nmp.cycles import Timing
    from mlhood.compiler.backends.nmp.machine import Machine
    from mlhood.compiler.backends.nmp.runner import Plan
    from mlhood.compiler.hir.graph import Graph


def machine(path: Path | None) -> Machine:
    """Return the machine of a TOML file, the course's without one."""
    from mlhood.compiler.backends.nmp.machine import default_machine, read_machine

    return default_machine() if path is None else read_machine(path)


def write(
    graph: Graph, machine: Machine, tables: bool, draw: Path | None, trace: Path | None, out: Path | None
) -> None:
    """Cut a graph over the CPU and the neural processor, print what it costs, and write files.

    Args:
        graph: A quantised graph; its dynamic axes are 1 long.
        machine: The neural processor.
        tables: Whether to print what runs where and why, and what each layer costs.
        draw: Where to draw what runs where.
        trace: Where to write the tilelets' timeline.
        out: The folder for the programs.

    Raises:
        CompilerError: The machine cannot run the graph.
        OutputError: A file cannot be written.
    """
    from mlhood.compiler.backends.nmp.nmp_trace import write_trace
    from mlhood.compiler.backends.nmp.partition_drawing import draw_partition
    from mlhood.compiler.backends.nmp.runner import Heterogeneous

    runner = Heterogeneous(graph, machine)
    open_axes = {axis for p in graph.placeholders.values() for axis in p.type.shape if isinstance(axis, str)}
    plan = runner.plan(dict.fromkeys(sorted(open_axes), 1))
    timings = _summarise(plan, tables)
    if out is not None:
        _write_programs(plan, timings, out)
    if trace is not None:
        write_trace(timings, trace)
    if draw is not None:
        draw_partition(plan.partition, draw)
    for path in filter(None, (trace, draw)):
        echo(f"wrote {path}")


def _summarise(plan: Plan, tables: bool) -> list[Timing]:
    """Print where nodes run and what the neural processor's programs cost; return their timings."""
    from mlhood.compiler.backends.nmp.cycles import time_program

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
    """Write each program as binary code and as text, and the table of its layers."""
    from mlhood.compiler.backends.nmp.isa.assembly import disassemble
    from mlhood.compiler.backends.nmp.isa.encoding import encode
    from mlhood.errors import OutputError
    from mlhood.files.atomic import write_atomic

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise OutputError("the folder cannot be made", where=out, got=error) from error
    for number, (program, timing) in enumerate(zip(plan.programs, timings, strict=True)):
        suffix = "" if len(timings) == 1 else f"-{number + 1}"
        contents = {
            f"program{suffix}.nmp": encode(program),
            f"program{suffix}.s": disassemble(program).encode(),
            f"report{suffix}.csv": timing.table().to_csv().encode(),
        }
        for name, data in contents.items():
            write_atomic(out / name, data)
            echo(f"wrote {out / name} ({len(data):,} bytes)")
