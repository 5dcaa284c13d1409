"""What `mlhood compile --target nmp` does beside the other targets: its machine, program, report, trace and drawing."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    import numpy as np

    from mlhood.compiler.backends.nmp.cycles import Timing
    from mlhood.compiler.backends.nmp.runner import Plan
    from mlhood.compiler.quantize import Recipe


def write(
    model: Path,
    recipe: Recipe | None,
    calibration: Mapping[str, np.ndarray] | None,
    inputs: Mapping[str, Any],
    machine: Path | None,
    outputs: Mapping[str, Path | None],
    report: bool,
    others: Mapping[str, object],
) -> None:
    """Compile a model for the CPU and the neural processor, print what it costs, and write files.

    Args:
        model: The ONNX file.
        recipe: How to quantise.
        calibration: Data for it.
        inputs: What is given of the inputs: arguments "dims", "constants" and "shapes" of `compile`. Other dynamic
            dimensions are 1.
        machine: A TOML file; the course's machine without one.
        outputs: Where to write: "out" (a folder for the program), "trace", "draw".
        report: Whether to print the dispatch table and the table of layers.
        others: Options that do not go with this target, by name; None or False where they are not given.

    Raises:
        CompilerError: The model cannot be compiled, or for options that do not go together.
        OutputError: A file cannot be written.
    """
    from mlhood.compiler.backends.nmp.machine import default_machine, read_machine
    from mlhood.compiler.backends.nmp.runner import Heterogeneous
    from mlhood.compiler.compile import stages
    from mlhood.compiler.partition_drawing import draw_partition
    from mlhood.errors import CompilerError
    from mlhood.files.atomic import check_output
    from mlhood.graph_drawing import check_path

    if given := [name for name, value in others.items() if value]:
        todo = "leave them out, or choose another target"
        raise CompilerError("options that do not go with --target nmp", got=", ".join(given), todo=todo)
    draw, trace, out = outputs["draw"], outputs["trace"], outputs["out"]
    if draw is not None:
        check_path(draw)
    if trace is not None:
        check_output(trace)
    chosen = default_machine() if machine is None else read_machine(machine)
    completed = []
    for stage in stages(model, recipe, None, calibration, **inputs):
        echo(stage)
        completed.append(stage)
    runner = Heterogeneous(completed[-1].graph, chosen)
    open_axes = {
        axis for p in completed[-1].graph.placeholders.values() for axis in p.type.shape if isinstance(axis, str)
    }
    plan = runner.plan(dict.fromkeys(sorted(open_axes), 1))
    timings = _summarise(plan, report)
    if out is not None:
        _write_programs(plan, timings, out)
    if trace is not None:
        _write_trace(timings, trace)
    if draw is not None:
        draw_partition(plan.partition, draw)
        echo(f"wrote {draw}")


def _summarise(plan: Plan, report: bool) -> list[Timing]:
    """Print where nodes run and what the neural processor's programs cost; return their timings."""
    from mlhood.compiler.backends.nmp.cycles import time_program

    echo(plan.partition)
    if report:
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
        if report:
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


def _write_trace(timings: list[Timing], path: Path) -> None:
    from mlhood.compiler.backends.nmp.nmp_trace import write_trace

    write_trace(timings, path)
    echo(f"wrote {path}")
