"""The option `--variant` of the commands."""

from __future__ import annotations

from typing import Any

import typer

from mlhood.grading.variants.draw import require_word


def variant_option(help: str) -> Any:
    """Return the option, whose value is None where it is not used. An empty word is refused: it is no public course.

    Args:
        help: What it does in a command.
    """
    return typer.Option("--variant", metavar="NAME", callback=_validate_word, help=help)


def _validate_word(word: str | None) -> str | None:
    if word is not None:
        require_word(word)
    return word
