"""The compiler's commands."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

if TYPE_CHECKING:
    from mlhood.compiler.hir.graph import Graph


def register(app: typer.Typer) -> None:
    """Add the commands to the command line."""
    app.command(name="compile")(compile_model)


def compile_model(
    model: Annotated[Path, typer.Argument(help="An ONNX file.")],
    quantize: Annotated[
        str | None,
        typer.Option(help="Quantise by this schema: asymmetric, symmetric, symmetric_unsigned or power_of_two."),
    ] = None,
    element: Annotated[str, typer.Option(help="Integers to quantise to: int8, int16 or uint8.")] = "int8",
    per_channel: Annotated[bool, typer.Option(help="One scale for each output channel of a weight.")] = False,
    calibration: Annotated[
        Path | None,
        typer.Option(help="An .npz file with typical inputs by name; the course's digits or photographs if left out."),
    ] = None,
    stop_after: Annotated[str | None, typer.Option(help="Stop after hir, optimized or quantized.")] = None,
    draw: Annotated[Path | None, typer.Option(help="Draw the last graph into this .svg or .png.")] = None,
    text: Annotated[bool, typer.Option(help="Print the last graph.")] = False,
    export: Annotated[Path | None, typer.Option(help="Write the last graph as ONNX, a quantised one as QDQ.")] = None,
) -> None:
    """Compile an ONNX file, and say what each stage made of it.

    Example: mlhood compile lenet.onnx --quantize power_of_two --draw lenet.svg
    """
    from mlhood.compiler.compile import stages
    from mlhood.compiler.hir.draw import draw as draw_graph
    from mlhood.compiler.hir.text import to_text
    from mlhood.compiler.quantize import Recipe
    from mlhood.compiler.quantize.samples import read_samples

    recipe = Recipe(quantize, element=element, per_channel=per_channel) if quantize else None
    data = read_samples(calibration) if calibration else None
    last = None
    for last in stages(model, recipe, stop_after, data):
        typer.echo(last)
    if last is None:
        return
    if text:
        typer.echo(to_text(last.graph), nl=False)
    if draw is not None:
        draw_graph(last.graph, draw)
        typer.echo(f"drawn: {draw}")
    if export is not None:
        _export(last.graph, export)
        typer.echo(f"written: {export}")


def _export(graph: Graph, path: Path) -> None:
    from mlhood.compiler.hir.exporter import to_onnx
    from mlhood.exchange.output import check_output, write_whole

    check_output(path)
    write_whole(path, to_onnx(graph).SerializeToString())
