"""Score the compiler on ONNX's own tests and on a zoo of architectures, and measure what compression costs.

python -m tests.tools.compiler conformance
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import Annotated

import typer

from mlhood.cli import main
from mlhood.files.terminal import echo

app = typer.Typer(help=__doc__, no_args_is_help=True, add_completion=False)
AsJson = Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")]


@app.command()
def conformance(as_json: AsJson = False) -> None:
    """Run ONNX's backend test suite on the compiler and print its score by tier of operators.

    The exit code is 1 if a test of a tier fails that is not explicitly excluded.

    Example: python -m tests.tools.compiler conformance
    """
    from tests.tools.compiler.conformance import EXCLUDES, conformance, unexpected_failures

    table = conformance()
    failed = unexpected_failures()
    if as_json:
        rows = {str(tier): row for tier, row in table.to_dict(orient="index").items()}
        echo(json.dumps({"score": rows, "excluded": EXCLUDES, "failed": failed}, indent=2))
    else:
        echo(table.to_string(formatters={"share": "{:.1%}".format}))
        for name, reason in EXCLUDES.items():
            echo(f"excluded: {name}: {reason}")
        for name in failed:
            echo(f"failed: {name}")
    raise typer.Exit(1 if failed else 0)


@app.command()
def zoo(
    architecture: Annotated[
        list[str] | None, typer.Option(help="Only this architecture, such as resnet; may be repeated.")
    ] = None,
    exporter: Annotated[
        list[str] | None, typer.Option(help="Only this exporter, such as torchscript-17 or dynamo-18.")
    ] = None,
    target: Annotated[list[str] | None, typer.Option(help="Only this target; default: interpreter and cpu.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run networks that torch exports in five ways, with a fixed and a dynamic batch, beside ONNX Runtime.

    The exit code is 1 if a result is wrong.

    Example: python -m tests.tools.compiler zoo --architecture resnet --architecture bert --exporter torchscript-17
    """
    from tests.tools.compiler.zoo import format_table, score_zoo, share

    outcomes = []
    for outcome in score_zoo(architecture or [], exporter or [], target or []):
        outcomes.append(outcome)
        if outcome.verdict != "right" and not as_json:
            echo(str(outcome))
    right, count = share(outcomes)
    echo(json.dumps([vars(outcome) for outcome in outcomes], indent=2) if as_json else format_table(outcomes))
    raise typer.Exit(0 if right == count else 1)


@app.command()
def quantization(
    names: Annotated[
        list[str] | None,
        typer.Argument(metavar="[NAME]...", help="Architectures of the zoo; all by default.", show_default=False),
    ] = None,
    exporter: Annotated[str, typer.Option(help="How they are exported: torchscript-17, dynamo-18, ...")] = (
        "torchscript-17"
    ),
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
) -> None:
    """Quantise the zoo's architectures to 8 bits with our compiler and with ONNX Runtime, and compare the loss.

    The columns are the SQNR of the output with the least, in dB, ours first; 6 dB are one bit. A star marks where ours
    is more than 1 dB below.

    Example: python -m tests.tools.compiler quantization resnet mobilenet_v3 gpt
    """
    from mlhood.files.atomic import check_output, write_atomic
    from tests.tools.compiler import quantization as bench

    if as_json is not None:
        check_output(as_json)
    rows = []
    for row in bench.measure(names or (), exporter):
        echo(row)
        rows.append(row)
    echo(bench.summary(rows))
    if as_json is not None:
        data = {"bench": "quantization", "exporter": exporter, "rows": [vars(row) for row in rows]}
        write_atomic(as_json, json.dumps(data, indent=2).encode())


@app.command()
def compression(
    seeds: Annotated[int, typer.Option(min=1, help="Number of teachers, for the spread of the accuracy.")] = 3,
    epochs: Annotated[int, typer.Option(min=1, help="Epochs of a teacher, and of what is made of it.")] = 15,
    width: Annotated[int, typer.Option(min=1, help="The teacher has as many times the units of LeNet-5.")] = 4,
    draw: Annotated[Path | None, typer.Option(help="Draw accuracy by cost to this file.")] = None,
    as_json: Annotated[Path | None, typer.Option("--json", help="Also write the rows to this file.")] = None,
) -> None:
    """Make a LeNet smaller by pruning and distillation, and show what that saves on the CPU and the neural processor.

    All networks are quantised to int8. Bytes are those of weights and biases as they run, and as stored without zeros;
    cycles and traffic are the neural processor's for one image; the time is that of the CPU, divided by the dense
    network's, with its confidence interval. The accuracy is that on digits which no training has seen.

    Example: python -m tests.tools.compiler compression --seeds 1 --draw pareto.svg
    """
    import io

    from mlhood.compiler.backends.nmp.machine import default_machine
    from mlhood.files.atomic import check_output, write_atomic
    from mlhood.graph_drawing import check_path
    from mlhood.measure import machine
    from mlhood.models import digits
    from tests.tools.compiler import compression as bench

    if as_json is not None:
        check_output(as_json)
    if draw is not None:
        check_path(draw)
    data = digits()
    echo(f"{len(data.train_images)} digits to train with, {len(data.test_images)} unseen: {data.source}")
    rows = bench.measure(data, default_machine(), seeds=seeds, epochs=epochs, width=width, report=echo)
    echo("\n".join([bench.HEADER, *map(str, rows)]))
    for cost, words in bench.COSTS.items():
        echo(f"Pareto-optimal by {words}: {'; '.join(row.name for row in bench.frontier(rows, cost))}")
    if draw is not None:
        from tests.tools.compiler.compression_figures import pareto

        drawn = io.BytesIO()
        pareto(rows).savefig(drawn, format=draw.suffix[1:].lower())
        write_atomic(draw, drawn.getvalue())
        echo(f"wrote {draw}")
    if as_json is not None:
        content = {"bench": "compression", "seeds": seeds, "epochs": epochs, "width": width, "digits": data.source}
        content |= {"machine": machine().as_dict(), "rows": [row.as_dict() for row in rows]}
        write_atomic(as_json, json.dumps(content, indent=2).encode())


if __name__ == "__main__":
    main(app)
