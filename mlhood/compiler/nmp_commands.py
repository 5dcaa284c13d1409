"""What `mlhood compile --target nmp` prints and writes: what runs where, programs, a timeline and a drawing.

The timeline has one track for the DMA engine, and one for each tilelet; microseconds are those of the machine's clock.
The format is that of `mlhood.compiler.backends.timing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mlhood.compiler.backends.nmp.cycles import Timing, time_program
from mlhood.compiler.backends.nmp.isa.assembly import disassemble
from mlhood.compiler.backends.nmp.isa.encoding import encode
from mlhood.compiler.backends.nmp.isa.instruction import Load, Store
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.partition_drawing import draw_partition
from mlhood.compiler.backends.nmp.runner import Heterogeneous, Plan
from mlhood.compiler.backends.timing import Event, naming, span, write_events
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import OutputError
from mlhood.files.atomic import check_output, write_atomic
from mlhood.files.terminal import echo

_ENGINE = 0  # its track; tilelet n has track n + 1


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


# -- the timeline


def write_trace(timings: Sequence[Timing], path: str | Path) -> Path:
    """Write when each instruction of programs runs; each program is a separate process. Return the path.

    Raises:
        OutputError: The file cannot be written.
    """
    check_output(Path(path))
    events = [event for number, timing in enumerate(timings) for event in program_events(timing, number + 1)]
    return write_events(events, path)


def program_events(timing: Timing, process: int = 1) -> Iterator[Event]:
    """Yield the events of a program: names of the tracks, layers, transfers, and what tilelets do."""
    machine, program = timing.program.machine, timing.program
    yield naming("process_name", process, _ENGINE, f"{program.name} on {machine.name}")
    yield naming("thread_name", process, _ENGINE, "DMA engine")
    for unit in range(machine.units):
        tile, tilelet = divmod(unit, machine.tilelets)
        yield naming("thread_name", process, unit + 1, f"tilelet t{tile}.{tilelet}")
    microseconds = 1e6 / machine.clock_hz
    for layer in program.layers:
        for number in range(layer.first, layer.end):
            instruction = program.instructions[number]
            arguments = {"layer": layer.name, "instruction": number}

            def event(
                track: int, start: int, end: int, what: str = instruction.mnemonic, args: Event = arguments
            ) -> Event:
                first, duration = (round(cycles * microseconds, 6) for cycles in (start, end - start))
                return span(what, args["layer"], first, duration, process, track, args)

            if isinstance(instruction, Load | Store):
                yield event(_ENGINE, int(timing.dma_starts[number]), int(timing.dma_ends[number]))
            units = getattr(instruction, "units", None)
            numbers = range(machine.units) if units is None else units.numbers(machine.tilelets)
            low, high = timing.offsets[number], timing.offsets[number + 1]
            for unit, start, end in zip(numbers, timing.starts[low:high], timing.ends[low:high], strict=True):
                yield event(unit + 1, int(start), int(end))
