"""The values of a variant: drawn from a word, the same on every machine and in every version of Python."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import typer

from mlhood.errors import GradingError
from mlhood.grading.variants.parameter import Parameter

WORD = re.compile(r"[A-Za-z0-9][\w./-]{0,99}", re.ASCII)


def draw(word: str, project_id: str, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return a value for each parameter, never its default: the public solution is to fit nowhere.

    Args:
        word: Of the variant.
        project_id: Such as `P1`.
        parameters: Of the project's tasks.

    Raises:
        GradingError: The word has other characters than letters, digits and `. _ / -`.
    """
    require_word(word)
    return {parameter.name: _drawn(word, project_id, parameter) for parameter in parameters}


def version_word(word: str, group: str) -> str:
    """Return the word of a group's version of a variant."""
    return f"{word}/{group}" if group else word


def _drawn(word: str, project_id: str, parameter: Parameter) -> Any:
    others = parameter.values[1:]
    digest = hashlib.sha256(f"{word}\n{project_id}\n{parameter.name}".encode()).digest()
    return others[int.from_bytes(digest[:8]) % len(others)]


def require_word(word: str) -> None:
    """Refuse what cannot be the name of a variant.

    Raises:
        GradingError: It is empty, too long, or has other characters than letters, digits and `. _ / -`.
    """
    if not WORD.fullmatch(word):
        raise GradingError(
            "this cannot be the name of a variant",
            where="--variant",
            expected="1 to 100 letters, digits and . _ / -, the first a letter or digit",
            got=repr(word[:100]),
            todo="choose another word, such as autumn-4f9c",
        )


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
