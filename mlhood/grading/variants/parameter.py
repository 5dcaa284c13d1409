"""What a variant of the course may vary in a task: parameters, declared beside the task's checks.

Their values are drawn from a variant's name, the same on every machine and in every version of Python.
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import typer

from mlhood.errors import GradingError

_NAME = re.compile(r"[A-Za-z0-9][\w./-]{0,99}", re.ASCII)


@dataclass(frozen=True)
class Parameter:
    """A parameter of a task, such as the stride of the convolution that it asks for.

    Args:
        name: An identifier, unique in the project: texts, checks and references use it by this name.
        values: Its domain, plain data, at least two. The first is the default, that of the course as it is published.
    """

    name: str
    values: tuple[Any, ...]

    @property
    def default(self) -> Any:
        """The value of the course as it is published."""
        return self.values[0]


def defaults(parameters: Iterable[Parameter]) -> dict[str, Any]:
    """Return the default value of each parameter by its name."""
    return {parameter.name: parameter.default for parameter in parameters}


def checked_values(parameters: Iterable[Parameter], values: Mapping[str, Any]) -> dict[str, Any]:
    """Return a value of its domain for every parameter, as plain data had it: lists stand for tuples.

    Raises:
        GradingError: A value is missing, or not of the domain.
    """
    checked = {}
    for parameter in parameters:
        value = _as_tuples(values.get(parameter.name))
        if value not in parameter.values:
            raise GradingError(
                "a variant has a value that its parameter does not have",
                where=parameter.name,
                expected=f"one of {parameter.values}",
                got=value,
                todo="make the version again, with the mlhood that it is graded with",
            )
        checked[parameter.name] = value
    return checked


def _as_tuples(value: Any) -> Any:
    return tuple(map(_as_tuples, value)) if isinstance(value, list) else value


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
