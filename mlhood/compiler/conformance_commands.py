"""What `mlhood conformance` does: ONNX's own tests, or the zoo of architectures."""

from __future__ import annotations

import json
from typing import Annotated

import typer

from mlhood.errors import CompilerError
from mlhood.files.terminal import echo


def conformance(
    as_json: Annotated[bool, typer.Option("--json", help="Print machine-readable JSON.")] = False,
    zoo: Annotated[
        bool, typer.Option("--zoo", help="Export, compile and run the zoo of small architectures instead.")
    ] = False,
    architecture: Annotated[
        list[str] | None, typer.Option(help="With --zoo: only this architecture, such as resnet; may be repeated.")
    ] = None,
    exporter: Annotated[
        list[str] | None, typer.Option(help="With --zoo: only this exporter, such as torchscript-17 or dynamo-18.")
    ] = None,
    target: Annotated[
        list[str] | None, typer.Option(help="With --zoo: only this target; default: interpreter and cpu.")
    ] = None,
) -> None:
    """Run ONNX's backend test suite on the compiler and print its score by tier of operators.

    With --zoo, run networks that torch exports in five ways, with a fixed and an open batch, beside ONNX Runtime.
    The exit code is 1 if a test of a tier fails that is not explicitly excluded, or an export is not right.

    Example: mlhood conformance

    Example: mlhood conformance --zoo --architecture resnet --architecture bert --exporter torchscript-17
    """
    if zoo:
        raise typer.Exit(_zoo(architecture or [], exporter or [], target or [], as_json))
    if architecture or exporter or target:
        what = "--architecture, --exporter and --target are for the zoo"
        raise CompilerError(what, todo="add --zoo")
    raise typer.Exit(_backend_suite(as_json))


def _zoo(architectures: list[str], exporters: list[str], targets: list[str], as_json: bool) -> int:
    """Score the zoo, and return the exit code."""
    from mlhood.compiler.zoo import format_table, score_zoo, share

    outcomes = []
    for outcome in score_zoo(architectures, exporters, targets):
        outcomes.append(outcome)
        if outcome.verdict != "right" and not as_json:
            echo(str(outcome))
    right, count = share(outcomes)
    if as_json:
        echo(json.dumps([vars(outcome) for outcome in outcomes], indent=2))
    else:
        echo(format_table(outcomes))
    return 0 if right == count else 1


def _backend_suite(as_json: bool) -> int:
    """Score the compiler on ONNX's backend tests, and return the exit code."""
    from mlhood.compiler.conformance import EXCLUDES, conformance, unexpected_failures

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
    return 1 if failed else 0
