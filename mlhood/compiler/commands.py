"""The command `mlhood compile`."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from mlhood.compiler import bundle_commands, nmp_commands
from mlhood.compiler.input_options import given_inputs
from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Mapping

    import numpy as np

    from mlhood.compiler.compile import Stage
    from mlhood.compiler.debugger import Comparison
    from mlhood.compiler.hir.graph import Graph
    from mlhood.compiler.lir.program import Program
    from mlhood.compiler.quantize import Recipe


def register(app: typer.Typer, bench: typer.Typer) -> None:
    """Add the command to `app`."""
    app.command(name="compile")(compile_model)


def compile_model(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    quantize: Annotated[
        str | None,
        typer.Option(help="Quantise with this schema: asymmetric, symmetric, symmetric_unsigned or power_of_two."),
    ] = None,
    element: Annotated[str, typer.Option(help="Quantised element type: int8, int16 or uint8.")] = "int8",
    per_channel: Annotated[bool, typer.Option(help="One scale per output channel of a weight.")] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(help="An .npz file with typical inputs by name; default: the course's digits or photographs."),
    ] = None,
    stop_after: Annotated[
        str | None,
        typer.Option(
            help="Stop after hir, optimized, quantized, lowered (for the target), or lir, which prints the program of "
            "instructions."
        ),
    ] = None,
    dim: Annotated[
        list[str] | None,
        typer.Option(
            help="The length of a dynamic axis, such as batch=1; may be repeated. Other axes remain open, and are 1 "
            "long in the random inputs of --compare and --profile."
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            help="The value of an input that must be known at compile time: a number, a list such as axes=1,2, or "
            "nested lists as in JSON; may be repeated."
        ),
    ] = None,
    shape: Annotated[
        list[str] | None,
        typer.Option(help="The shape of an input, such as x=batch,3,8,8, if the model declares none; may be repeated."),
    ] = None,
    memory: Annotated[
        Path | None,
        typer.Option(help="With --stop-after lir: print the memory plan, and draw it to this .svg or .png file."),
    ] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw the last graph to this .svg or .png file.")] = None,
    text: Annotated[bool, typer.Option(help="Print the last graph.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the last graph as ONNX, a quantised one as QDQ.")] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Compare each value of the last graph on this target with the interpreter, on random inputs; --draw "
            "draws where the target departs first. The exit code is 1 if it does.",
        ),
    ] = None,
    target: Annotated[
        str,
        typer.Option(
            help="What to compile for: cpu has native kernels for a whole graph, and the stage lowered; c writes C99, "
            "and wasm a page to draw digits on, both to the folder --out; nmp cuts the graph over the CPU and a "
            "simulated neural processor, and says what it costs."
        ),
    ] = "interpreter",
    profile: Annotated[
        Path | None,
        typer.Option(
            help="Run the last graph on random inputs, and write when each node ran to this .json file, which "
            "ui.perfetto.dev and chrome://tracing open."
        ),
    ] = None,
    out: Annotated[
        Path | None, typer.Option(help="With --target c, wasm or nmp: the folder to write to; of nmp its programs.")
    ] = None,
    levels: Annotated[
        str | None,
        typer.Option(
            help="With --target c or wasm: the numbers that the model knows as a black and a white pixel, such as 0,1; "
            "default: those of the course's digits for pictures of 32 x 32, 0,1 for others."
        ),
    ] = None,
    machine: Annotated[
        Path | None, typer.Option(help="With --target nmp: a TOML file with the machine; default: the course's.")
    ] = None,
    report: Annotated[
        bool, typer.Option(help="With --target nmp: print what runs where and why, and what each layer costs.")
    ] = False,
    trace: Annotated[
        Path | None,
        typer.Option(help="With --target nmp: write the tilelets' timeline to this .json file, for ui.perfetto.dev."),
    ] = None,
) -> None:
    """Compile an ONNX file, and summarise the graph after each stage.

    Example: mlhood compile lenet.onnx --quantize power_of_two --draw lenet.svg

    Example: mlhood compile lenet.onnx --stop-after lir --dim batch=1

    Example: mlhood compile reduce.onnx --constant axes=1,2

    Example: mlhood compile lenet.onnx --compare direct --dim batch=4 --draw departure.svg

    Example: mlhood compile lenet.onnx --target cpu --stop-after lowered --text

    Example: mlhood compile lenet.onnx --target cpu --profile lenet.json

    Example: mlhood compile lenet.onnx --quantize symmetric --target c --out lenet

    Example: mlhood compile lenet.onnx --quantize power_of_two --target nmp --report --trace lenet.json --draw lenet.svg
    """
    from mlhood.compiler.backends.targets import DEFAULT, check_target
    from mlhood.compiler.quantize import Recipe
    from mlhood.compiler.quantize.samples import read_samples

    if quantize is None:
        _check_unquantized(element, per_channel, calibration)
    recipe = None if quantize is None else Recipe(quantize, element=element, per_channel=per_channel)
    data = read_samples(calibration) if calibration else None
    inputs = given_inputs(dim or (), constant or (), shape or ())
    others = {"--stop-after": stop_after, "--memory": memory, "--text": text, "--export": export}
    others |= {"--compare": compare, "--profile": profile}
    if target == "nmp":
        files = {"out": out, "trace": trace, "draw": draw}
        others["--levels"] = levels
        nmp_commands.write(model, recipe, data, inputs, machine, files, report, others)
        return
    if target in ("c", "wasm"):
        others |= {"--draw": draw, "--machine": machine, "--report": report, "--trace": trace}
        bundle_commands.write(model, out, target, recipe, data, inputs, levels, others)
        return
    check_target(target)
    _check_bundle(out, levels)
    _check_nmp(machine, report, trace)
    _check_outputs(draw, memory, export, stop_after)
    _check_runs(compare, profile, stop_after)
    last = _compile(model, recipe, stop_after, data, inputs, DEFAULT if compare else target)
    _print(last, text, memory, model.stem)
    if profile is not None:
        _profile(last.graph, target, profile)
    departure = None if compare is None else _compare(last.graph, compare)
    _write(last.graph, None if departure else draw, export)
    if departure is not None:
        if draw is not None:
            departure.draw(draw)
            echo(f"wrote {draw}")
        raise typer.Exit(1)


def _compile(
    model: Path,
    recipe: Recipe | None,
    stop_after: str | None,
    data: Mapping[str, np.ndarray] | None,
    inputs: Mapping[str, Any],
    target: str,
) -> Stage:
    """Compile a model, and print each stage and what quantisation loses; return the last stage."""
    from mlhood.compiler.compile import stages
    from mlhood.compiler.quantize.samples import samples

    completed = []
    for stage in stages(model, recipe, stop_after, data, target=target, **inputs):
        echo(stage)
        completed.append(stage)
    graphs = {stage.name: stage.graph for stage in completed}
    if "quantized" in graphs:
        optimized = graphs["optimized"]
        echo(_quantization_loss(optimized, graphs["quantized"], samples(optimized) if data is None else data))
    return completed[-1]


def _print(stage: Stage, text: bool, memory: Path | None, name: str) -> None:
    """Print a stage's program, with its memory plan if asked for, or its graph if `text`."""
    from mlhood.compiler.hir.text import to_text
    from mlhood.compiler.lir.text import to_text as program_to_text

    if stage.program is not None:
        echo(program_to_text(stage.program), nl=False)
        if memory is not None:
            _plan_memory(stage.program, name, memory)
    elif text:
        echo(to_text(stage.graph), nl=False)


def _check_bundle(out: Path | None, levels: str | None) -> None:
    from mlhood.errors import CompilerError

    options = {"--out": out, "--levels": levels}
    if given := [name for name, value in options.items() if value is not None]:
        raise CompilerError("options of --target c and wasm only", got=", ".join(given), todo="add --target c")


def _check_nmp(machine: Path | None, report: bool, trace: Path | None) -> None:
    from mlhood.errors import CompilerError

    options = {"--machine": machine, "--report": report, "--trace": trace}
    if given := [name for name, value in options.items() if value]:
        raise CompilerError("options of --target nmp only", got=", ".join(given), todo="add --target nmp")


def _check_runs(compare: str | None, profile: Path | None, stop_after: str | None) -> None:
    from mlhood.compiler.backends.targets import check_target
    from mlhood.errors import CompilerError
    from mlhood.files.atomic import check_output

    if compare is not None:
        check_target(compare)
    if profile is not None:
        check_output(profile)
    if (compare or profile) and stop_after == "lir":
        todo = "stop earlier: --stop-after hir, optimized or quantized"
        raise CompilerError("--compare and --profile run a graph, not a program", got="--stop-after lir", todo=todo)


def _profile(graph: Graph, target: str, path: Path) -> None:
    """Run a graph on random inputs, and write a trace."""
    from mlhood.compiler.backends.targets import prepare
    from mlhood.compiler.backends.trace import write_trace

    write_trace(prepare(graph, target), _random_inputs(graph), path, name=f"{graph.name} on {target}")
    echo(f"wrote {path}")


def _random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    from mlhood.compiler.hir.inputs import random_inputs

    return random_inputs({name: value.type for name, value in graph.placeholders.items()})


def _compare(graph: Graph, target: str) -> Comparison | None:
    """Compare a target with the interpreter on random inputs, and print the result; return it if the target departs."""
    from mlhood.compiler.backends.targets import prepare
    from mlhood.compiler.debugger import compare

    comparison = compare(graph, prepare(graph, target), _random_inputs(graph))
    echo(f"{target}: {comparison}")
    return None if comparison.agrees else comparison


def _check_outputs(draw: Path | None, memory: Path | None, export: Path | None, stop_after: str | None) -> None:
    """Check that what is asked for can be written, before anything is compiled."""
    from mlhood.errors import CompilerError
    from mlhood.files.atomic import check_output
    from mlhood.graph_drawing import check_path

    for path in filter(None, (draw, memory)):
        check_path(path)
    if memory is not None and stop_after != "lir":
        raise CompilerError("--memory without a program", todo="stop after the LIR: --stop-after lir")
    if export is not None:
        check_output(export)


def _check_unquantized(element: str, per_channel: bool, calibration: Path | None) -> None:
    from mlhood.errors import CompilerError

    is_set = {"--element": element != "int8", "--per-channel": per_channel, "--calibration": calibration is not None}
    if any(is_set.values()):
        raise CompilerError(
            "quantisation options without --quantize",
            got=", ".join(option for option, value in is_set.items() if value),
            todo="choose a schema: --quantize symmetric",
        )


def _quantization_loss(graph: Graph, quantized: Graph, data: Mapping[str, np.ndarray]) -> str:
    """Return a one-line summary of the loss on the calibration data."""
    import numpy as np

    from mlhood.compiler.backends.interpreter import Interpreter
    from mlhood.compiler.quantize import kept_in_float, layer_sqnr, sqnr

    expected, actual = (next(iter(Interpreter(g).run(data).values())) for g in (graph, quantized))
    decibels = sqnr(expected, actual)
    loss = layer_sqnr(graph, quantized, data)["alone"]
    worst = loss.idxmin() if np.isfinite(loss).any() else "none"
    in_float = ", ".join(kept_in_float(quantized)) or "none"
    return f"on the calibration data: SQNR {decibels:.1f} dB; layer with most loss: {worst}; kept in float: {in_float}"


def _plan_memory(program: Program, name: str, path: Path) -> None:
    """Print a program's memory plan, and draw it."""
    import io

    from mlhood.compiler.memory.memory_figures import strip_chart
    from mlhood.compiler.memory.plan import plan
    from mlhood.files.atomic import write_atomic

    made, drawn = plan(program.lifetimes()), io.BytesIO()
    echo(made)
    strip_chart(made, name).savefig(drawn, format=path.suffix[1:].lower())
    write_atomic(path, drawn.getvalue())
    echo(f"wrote {path}")


def _write(graph: Graph, draw: Path | None, export: Path | None) -> None:
    from mlhood.compiler.hir.draw import draw as draw_graph
    from mlhood.compiler.onnx.exporter import to_onnx
    from mlhood.files.atomic import write_atomic

    if draw is not None:
        draw_graph(graph, draw)
        echo(f"wrote {draw}")
    if export is not None:
        write_atomic(export, to_onnx(graph).SerializeToString())
        echo(f"wrote {export}")
