"""A program's simulated timeline as a file for a trace viewer: Perfetto (ui.perfetto.dev), or chrome://tracing.

One track for the DMA engine, and one for each tilelet; microseconds are those of the machine's clock. The format is
that of `mlhood.compiler.backends.trace`.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from mlhood.compiler.backends.nmp.cycles import Timing
from mlhood.compiler.backends.nmp.isa.instruction import Load, Store
from mlhood.files.atomic import check_output, write_atomic

Event = dict[str, Any]
_ENGINE = 0  # its track; tilelet n has track n + 1


def write_trace(timings: Sequence[Timing], path: str | Path) -> Path:
    """Write when each instruction of programs runs; each program is a separate process. Return the path.

    Raises:
        OutputError: The file cannot be written.
    """
    check_output(Path(path))
    events = [event for number, timing in enumerate(timings) for event in program_events(timing, number + 1)]
    content = {"traceEvents": events, "displayTimeUnit": "ns"}
    return write_atomic(path, json.dumps(content, separators=(",", ":"), allow_nan=False).encode())


def program_events(timing: Timing, process: int = 1) -> Iterator[Event]:
    """Yield the events of a program: names of the tracks, layers, transfers, and what tilelets do."""
    machine, program = timing.program.machine, timing.program
    yield _name("process_name", process, _ENGINE, f"{program.name} on {machine.name}")
    yield _name("thread_name", process, _ENGINE, "DMA engine")
    for unit in range(machine.units):
        tile, tilelet = divmod(unit, machine.tilelets)
        yield _name("thread_name", process, unit + 1, f"tilelet t{tile}.{tilelet}")
    microseconds = 1e6 / machine.clock_hz
    for layer in program.layers:
        for number in range(layer.first, layer.end):
            instruction = program.instructions[number]
            arguments = {"layer": layer.name, "instruction": number}

            def event(
                track: int, start: int, end: int, what: str = instruction.mnemonic, args: Event = arguments
            ) -> Event:
                times = {"ts": round(start * microseconds, 6), "dur": round((end - start) * microseconds, 6)}
                return {
                    "name": what,
                    "cat": args["layer"],
                    "ph": "X",
                    **times,
                    "pid": process,
                    "tid": track,
                    "args": args,
                }

            if isinstance(instruction, Load | Store):
                yield event(_ENGINE, int(timing.dma_starts[number]), int(timing.dma_ends[number]))
            units = getattr(instruction, "units", None)
            numbers = range(machine.units) if units is None else units.numbers(machine.tilelets)
            low, high = timing.offsets[number], timing.offsets[number + 1]
            for unit, start, end in zip(numbers, timing.starts[low:high], timing.ends[low:high], strict=True):
                yield event(unit + 1, int(start), int(end))


def _name(kind: str, process: int, track: int, name: str) -> Event:
    return {"name": kind, "ph": "M", "ts": 0, "pid": process, "tid": track, "args": {"name": name}}
