"""Score the compiler on ONNX's own tests and on a zoo of architectures.

python -m tests.tools.compiler conformance
"""

from __future__ import annotations

import json
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


if __name__ == "__main__":
    main(app)
