"""Score the compiler on ONNX's own tests and on a zoo of architectures, and the neural processor's search for slices.

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
        list[str] | None, typer.Option(help="Only this architecture, such as lenet; may be repeated.")
    ] = None,
    exporter: Annotated[
        list[str] | None, typer.Option(help="Only this exporter, such as torchscript-17 or dynamo-18.")
    ] = None,
    target: Annotated[list[str] | None, typer.Option(help="Only this target; default: interpreter and cpu.")] = None,
    as_json: AsJson = False,
) -> None:
    """Run networks that torch exports in five ways, with a fixed and a dynamic batch, beside ONNX Runtime.

    The exit code is 1 if a result is wrong.

    Example: python -m tests.tools.compiler zoo --architecture lenet --architecture bert --exporter torchscript-17
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
def neural_processor(
    names: Annotated[
        list[str] | None,
        typer.Argument(
            metavar="[MODEL]...", help="lenet, resnet18, resnet50, mobilenet_v2; all by default.", show_default=False
        ),
    ] = None,
    machine: Annotated[Path | None, typer.Option(help="Machine as a TOML file; the course's by default.")] = None,
    element: Annotated[str, typer.Option(help="Type of activations and weights: int8 or int16.")] = "int8",
) -> None:
    """Show what the search for slices gains on the neural processor: cycles of each layer, by the cycle model.

    The greedy default and the searched slices are those of each layer alone; the bound is what no program can beat. At
    last come layers that are small enough to try all slicings, with the search's distance from the best.

    Example: python -m tests.tools.compiler neural-processor lenet mobilenet_v2
    """
    from mlhood.compiler.backends.nmp.machine import default_machine, read_machine
    from tests.tools.compiler import neural_processor as bench

    built = default_machine() if machine is None else read_machine(machine)
    echo(f"{built.name}: {built.units} tilelets, blobs of {built.blob_bytes:,} bytes, {element}")
    for name in names or bench.NAMES:
        echo(f"\n{bench.measure(bench.network_graph(name, element), built)}")
    echo("\nthe search beside the best of all slicings, on small layers and a machine of two tilelets")
    for name, searched, best in bench.gaps(built):
        echo(f"{name:34}{searched:>8,}{best:>8,}{searched / best - 1:>8.1%}")


if __name__ == "__main__":
    main(app)
