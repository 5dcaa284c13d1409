"""A program's simulated timeline as a file for a trace viewer: Perfetto (ui.perfetto.dev), or chrome://tracing.

One track for the DMA engine, and one for each tilelet; microseconds are those of the machine's clock. The format is
that of `mlhood.compiler.backends.timing`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from pathlib import Path

from mlhood.compiler.backends.nmp.cycles import Timing
from mlhood.compiler.backends.nmp.isa.instruction import Load, Store
from mlhood.compiler.backends.timing import Event, naming, span, write_events
from mlhood.files.atomic import check_output

_ENGINE = 0  # its track; tilelet n has track n + 1


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
