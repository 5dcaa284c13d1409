"""What is shown on a terminal: names from files of others are escaped, so that none of them can act on it."""

from __future__ import annotations

from typing import Any

import typer

from mlhood.errors import printable


def echo(message: Any = "", *, nl: bool = True, err: bool = False) -> None:
    """Print a message, without characters that act on the terminal; see `mlhood.errors.printable`.

    Args:
        message: Anything; its text is printed.
        nl: Whether to end the line.
        err: Print to standard error.
    """
    typer.echo(printable(str(message)), nl=nl, err=err)
