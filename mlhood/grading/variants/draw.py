"""The values of a variant: drawn from a name, the same on every machine and in every version of Python."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable
from typing import Any

import typer

from mlhood.errors import GradingError
from mlhood.grading.variants.parameter import Parameter

_NAME = re.compile(r"[A-Za-z0-9][\w./-]{0,99}", re.ASCII)


def draw(name: str, project_id: str, parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return a value for each parameter, never its default: the public solution is to fit nowhere.

    Args:
        name: Of the variant.
        project_id: Such as `P1`.
        parameters: Of the project's tasks.

    Raises:
        GradingError: The name has other characters than letters, digits and `. _ / -`.
    """
    require_variant_name(name)
    return {parameter.name: _drawn(name, project_id, parameter) for parameter in parameters}


def version_name(name: str, group: str) -> str:
    """Return the name of a group's version of a variant."""
    return f"{name}/{group}" if group else name


def _drawn(name: str, project_id: str, parameter: Parameter) -> Any:
    others = parameter.values[1:]
    digest = hashlib.sha256(f"{name}\n{project_id}\n{parameter.name}".encode()).digest()
    return others[int.from_bytes(digest[:8]) % len(others)]


def require_variant_name(name: str) -> None:
    """Refuse what cannot be the name of a variant.

    Raises:
        GradingError: It is empty, too long, or has other characters than letters, digits and `. _ / -`.
    """
    if not _NAME.fullmatch(name):
        raise GradingError(
            "this cannot be the name of a variant",
            where="--variant",
            expected="1 to 100 letters, digits and . _ / -, the first a letter or digit",
            got=repr(name[:100]),
            todo="choose another name, such as autumn-4f9c",
        )


def variant_option(help: str) -> Any:
    """Return the option, whose value is None where it is not used. An empty name is refused: it is no public course.

    Args:
        help: What it does in a command.
    """
    return typer.Option("--variant", metavar="NAME", callback=_validate, help=help)


def _validate(name: str | None) -> str | None:
    if name is not None:
        require_variant_name(name)
    return name
