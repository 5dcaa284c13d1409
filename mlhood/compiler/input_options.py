"""Options of commands that say something about the inputs of a model: --dim, --constant and --shape."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable
from typing import Any


def given_inputs(dims: Iterable[str], constants: Iterable[str], shapes: Iterable[str]) -> dict[str, dict[str, Any]]:
    """Return the arguments "dims", "constants" and "shapes" of `compile` that options give, each as NAME=VALUE.

    Raises:
        CompilerError: An option cannot be read.
    """
    return {
        "dims": _parse("--dim", dims, int, "a name and a number, such as batch=1"),
        "constants": _parse("--constant", constants, _numbers, "a name and numbers, such as k=3 or axes=1,2"),
        "shapes": _parse("--shape", shapes, _shape, "a name and lengths or names of axes, such as x=batch,3,8,8"),
    }


def _parse(option: str, given: Iterable[str], read: Callable[[str], Any], expected: str) -> dict[str, Any]:
    from mlhood.errors import CompilerError

    values = {}
    for text in given:
        name, equals, value = text.rpartition("=")
        try:
            values[name] = read(value)
        except (ValueError, RecursionError):
            equals = ""
        if not name or not equals:
            raise CompilerError(f"invalid {option}", expected=expected, got=text)
    return values


def _numbers(text: str) -> Any:
    return json.loads(f"[{text}]" if "," in text and not text.startswith("[") else text)


def _shape(text: str) -> tuple[int | str, ...]:
    return tuple(int(axis) if axis.isdecimal() else axis for axis in text.split(",") if text)
