"""The command line: each command is a thin call into the part of the package that does the work."""

from __future__ import annotations

import importlib
import importlib.metadata
import json
import sys
from pathlib import Path
from typing import Annotated

import typer

from mlhood.errors import MlhoodError
from mlhood.files.terminal import echo

# Modules that add commands, by their `register`. The student version lacks those that only authors and instructors
# need, a sandbox those of grading.
COMMANDS = (
    "compiler/commands.py",
    "bench_commands.py",
    "dataflow/commands.py",
    "jaxlab/cluster/commands.py",
    "grading/commands.py",
    "grading/course_commands.py",
    "grading/class_commands.py",
)
_PRESENT = [path for path in COMMANDS if (Path(__file__).parent / path).is_file()]

app = typer.Typer(
    name="mlhood",
    help="Machine Learning under the hood: run, check and release the course's notebooks.",
    epilog=None if len(_PRESENT) == len(COMMANDS) else "The instructor's version has more commands.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
)


def _print_version(requested: bool) -> None:
    if requested:
        echo(f"mlhood {importlib.metadata.version('mlhood')}")
        raise typer.Exit


@app.callback()
def _root(
    version: Annotated[
        bool, typer.Option("--version", help="Print the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    """Machine Learning under the hood."""


@app.command()
def doctor(as_json: Annotated[bool, typer.Option("--json", help="Print JSON.")] = False) -> None:
    """Report what this machine is and which parts of the course work on it.

    The exit code is 1 if something required is missing or broken, 0 if only optional parts are.

    Example: mlhood doctor
    """
    from mlhood.doctor import examine, print_report

    examination = examine()
    if as_json:
        echo(json.dumps(examination.as_dict(), indent=2))
    else:
        print_report(examination)
    raise typer.Exit(0 if examination.healthy else 1)


@app.command()
def view(
    file: Annotated[Path, typer.Argument(help="An ONNX file.")],
    output: Annotated[
        Path | None, typer.Option(help="Draw to this .svg, .png or .pdf file instead of serving the page.")
    ] = None,
    port: Annotated[int | None, typer.Option(min=1, max=65535, help="Port to serve on; a free one by default.")] = None,
    browser: Annotated[bool, typer.Option(help="Open the page in a browser.")] = True,
) -> None:
    """Show an ONNX file with Netron until Ctrl-C, or draw it to a file.

    Example: mlhood view lenet.onnx --output lenet.pdf
    """
    from mlhood import exchange

    if output is None:
        exchange.show(file, port, browse=browser, echo=echo)
    else:
        echo(exchange.render(file, output))


bench = typer.Typer(help="Measure how long parts of the course take.", no_args_is_help=True)
for path in _PRESENT:
    importlib.import_module(f"mlhood.{path.removesuffix('.py').replace('/', '.')}").register(app, bench)
if bench.registered_commands:
    app.add_typer(bench, name="bench")


def main(commands: typer.Typer | None = None) -> None:
    """Run commands, by default mlhood's: an MlhoodError becomes its message and exit code 2, Ctrl-C exit code 130."""
    try:
        (commands or app)()
    except MlhoodError as error:
        echo(str(error), err=True)
        sys.exit(2)
    except KeyboardInterrupt:
        echo("stopped; what was finished is kept", err=True)
        sys.exit(130)
