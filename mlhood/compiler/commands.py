"""The command `mlhood compile`."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, Literal

import typer

from mlhood.files.terminal import echo

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    import numpy as np

    from mlhood.compiler.compile import Stage
    from mlhood.compiler.hir.graph import Graph
    from mlhood.compiler.lir.program import Program
    from mlhood.compiler.quantize import Recipe

_BUNDLE = ("--stop-after", "--text", "--draw", "--compare")
# by target, the options that do not go with it
_OTHER_OPTIONS = {"c": _BUNDLE, "wasm": _BUNDLE, "nmp": ("--stop-after", "--compare")}


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
            "long in the random inputs of --compare."
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
    text: Annotated[
        Literal["hir", "stablehlo"] | None,
        typer.Option(
            help="Print the last graph: as hir, or as the stablehlo to which JAX lowers it, a dialect of MLIR, which "
            "does not have the operators of the stage lowered; with --target nmp what runs where, and what each layer "
            "costs."
        ),
    ] = None,
    draw: Annotated[
        Path | None,
        typer.Option(
            help="Draw the last graph to this .svg or .png file; after lir the plan of the program's memory; with "
            "--target nmp what runs where."
        ),
    ] = None,
    compare: Annotated[
        str | None,
        typer.Option(
            metavar="TARGET",
            help="Compare each value of the last graph on this target with the interpreter, on random inputs. The exit "
            "code is 1 if one differs.",
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
    out: Annotated[
        Path | None,
        typer.Option(
            help="Write the last graph to this file as ONNX, a quantised one as QDQ; with --target c, wasm or nmp what "
            "they write to this folder."
        ),
    ] = None,
) -> None:
    """Compile an ONNX file, and summarise the graph after each stage.

    Example: mlhood compile lenet.onnx --quantize power_of_two --draw lenet.svg

    Example: mlhood compile lenet.onnx --stop-after lir --dim batch=1 --draw memory.svg

    Example: mlhood compile reduce.onnx --constant axes=1,2

    Example: mlhood compile lenet.onnx --compare direct --dim batch=4

    Example: mlhood compile lenet.onnx --target cpu --stop-after lowered --text hir

    Example: mlhood compile lenet.onnx --text stablehlo

    Example: mlhood compile lenet.onnx --quantize symmetric --target c --out lenet

    Example: mlhood compile lenet.onnx --quantize power_of_two --target nmp --text hir --draw lenet.svg
    """
    from mlhood.compiler.quantize import Recipe
    from mlhood.compiler.quantize.samples import read_samples

    if quantize is None:
        _check_unquantized(element, per_channel, calibration)
    given = {"--stop-after": stop_after, "--text": text, "--draw": draw, "--compare": compare}
    _check_options(target, given | {"--out": out})
    recipe = None if quantize is None else Recipe(quantize, element=element, per_channel=per_channel)
    data = read_samples(calibration) if calibration else None
    inputs = {
        "dims": _parse("--dim", dim, int, "a name and a number, such as batch=1"),
        "constants": _parse("--constant", constant, _numbers, "a name and numbers, such as k=3 or axes=1,2"),
        "shapes": _parse("--shape", shape, _shape, "a name and lengths or names of axes, such as x=batch,3,8,8"),
    }
    if out is not None and target in ("c", "wasm"):
        _write_bundle(model, out, target, recipe, data, inputs)
        return
    if target == "nmp":
        from mlhood.compiler import nmp_commands

        last = _compile(model, recipe, stop_after, data, inputs, target)
        nmp_commands.write(last.graph, text is not None, draw, out)
        return
    last = _compile(model, recipe, stop_after, data, inputs, "interpreter" if compare else target)
    _print(last, text)
    if draw is not None:
        _draw(last, model.stem, draw)
        echo(f"wrote {draw}")
    if out is not None:
        _export(last.graph, out)
    if compare is not None and not _agrees(last.graph, compare):
        raise typer.Exit(1)


def _check_unquantized(element: str, per_channel: bool, calibration: Path | None) -> None:
    from mlhood.errors import CompilerError

    is_set = {"--element": element != "int8", "--per-channel": per_channel, "--calibration": calibration is not None}
    if any(is_set.values()):
        raise CompilerError(
            "quantisation options without --quantize",
            got=", ".join(option for option, value in is_set.items() if value),
            todo="choose a schema: --quantize symmetric",
        )


def _check_options(target: str, given: Mapping[str, Any]) -> None:
    """Check that options go together, and that what they ask for can be written, before anything is compiled."""
    from mlhood.compiler.backends.targets import check_target
    from mlhood.errors import CompilerError
    from mlhood.files.atomic import check_output
    from mlhood.graph_drawing import check_path

    if wrong := [option for option in _OTHER_OPTIONS.get(target, ()) if given[option]]:
        todo = "leave them out, or choose another target"
        raise CompilerError(f"options that do not go with --target {target}", got=", ".join(wrong), todo=todo)
    if target in ("c", "wasm"):
        if given["--out"] is None:
            got, todo = "none", "add --out FOLDER"
            raise CompilerError(f"--target {target} writes files", expected="a folder", got=got, todo=todo)
        return
    for each in filter(None, (target, given["--compare"])):
        check_target(each)
    if given["--compare"] and given["--stop-after"] == "lir":
        todo = "stop earlier: --stop-after hir, optimized or quantized"
        raise CompilerError("--compare runs a graph, not a program", got="--stop-after lir", todo=todo)
    if given["--draw"] is not None:
        check_path(given["--draw"])
    if given["--out"] is not None and target != "nmp":
        check_output(given["--out"])


def _parse(option: str, given: Iterable[str] | None, read: Callable[[str], Any], expected: str) -> dict[str, Any]:
    """Return what an option, given as NAME=VALUE each time, says of the inputs, by name."""
    from mlhood.errors import CompilerError

    values = {}
    for text in given or ():
        name, equals, value = text.rpartition("=")
        try:
            values[name] = read(value)
        except (ValueError, RecursionError):
            equals = ""
        if not name or not equals:
            raise CompilerError(f"invalid {option}", expected=expected, got=text)
    return values


def _numbers(text: str) -> Any:
    return json.loads(f"[{text}]" if "," in text and not text.startswith("[") else text)


def _shape(text: str) -> tuple[int | str, ...]:
    return tuple(int(axis) if axis.isdecimal() else axis for axis in text.split(",") if text)


def _write_bundle(
    model: Path,
    out: Path,
    target: str,
    recipe: Recipe | None,
    data: Mapping[str, np.ndarray] | None,
    inputs: Mapping[str, Any],
) -> None:
    """Write C or a page, and print its stages and files."""
    from mlhood.compiler.bundle import write_bundle

    bundle = write_bundle(model, out, target, recipe, calibration=data, **inputs)
    for stage in bundle.stages:
        echo(stage)
    for name, length in bundle.dims.items():
        note = "" if name in inputs["dims"] else f"; choose another with --dim {name}=..."
        echo(f"axis {name!r} has length {length}{note}")
    for path in bundle.paths:
        echo(f"wrote {path} ({path.stat().st_size:,} bytes)")


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
    from mlhood.compiler.quantize.samples import samples, split

    completed = []
    for stage in stages(model, recipe, stop_after, data, target=target, **inputs):
        echo(stage)
        completed.append(stage)
    graphs = {stage.name: stage.graph for stage in completed}
    if "quantized" in graphs:
        optimized = graphs["optimized"]
        batch = samples(optimized) if data is None else next(split(optimized, data))
        echo(_quantization_loss(optimized, graphs["quantized"], batch))
    return completed[-1]


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


def _print(stage: Stage, text: str | None) -> None:
    """Print a stage's graph as `text`, or its program."""
    from mlhood.compiler.hir.text import to_text
    from mlhood.compiler.lir.text import to_text as program_to_text

    if text == "stablehlo":
        from mlhood.compiler.backends.xla import Xla

        echo(Xla(stage.graph).lower(_random_inputs(stage.graph)).as_text(), nl=False)
    elif stage.program is not None:
        echo(program_to_text(stage.program), nl=False)
    elif text:
        echo(to_text(stage.graph), nl=False)


def _random_inputs(graph: Graph) -> dict[str, np.ndarray]:
    from mlhood.compiler.hir.inputs import random_inputs

    return random_inputs({name: value.type for name, value in graph.placeholders.items()})


def _agrees(graph: Graph, target: str) -> bool:
    """Compare a target with the interpreter on random inputs, print the result, and return whether they agree."""
    from mlhood.compiler.analysis.debugger import compare
    from mlhood.compiler.backends.targets import prepare

    comparison = compare(graph, prepare(graph, target), _random_inputs(graph))
    echo(f"{target}: {comparison}")
    return comparison.agrees


def _draw(stage: Stage, name: str, path: Path) -> None:
    from mlhood.compiler.hir.draw import draw

    if stage.program is None:
        draw(stage.graph, path)
    else:
        _draw_memory(stage.program, name, path)


def _draw_memory(program: Program, name: str, path: Path) -> None:
    """Print a program's memory plan, and draw it."""
    import io

    from mlhood.compiler.memory.memory_figures import strip_chart
    from mlhood.compiler.memory.plan import plan
    from mlhood.files.atomic import write_atomic

    made, drawn = plan(program.lifetimes()), io.BytesIO()
    echo(made)
    strip_chart(made, name).savefig(drawn, format=path.suffix[1:].lower())
    write_atomic(path, drawn.getvalue())


def _export(graph: Graph, path: Path) -> None:
    from mlhood.compiler.onnx.exporter import to_onnx
    from mlhood.files.atomic import write_atomic

    write_atomic(path, to_onnx(graph).SerializeToString())
    echo(f"wrote {path}")
