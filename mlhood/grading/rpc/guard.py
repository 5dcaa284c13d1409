"""Whether a call leaves its arguments alone, and returns memory of its own.

It runs in the student's process, where probes may use it, too; nothing that it says earns points.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

CHANGED, SHARED = "changed", "shared"


class Guard:
    """Compares the arguments of a call before and after it.

    Args:
        arguments: Of the call; arrays and plain data are compared, other objects are not.
    """

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self._before = _copied(arguments)

    def broken(self, result: object) -> str:
        """Return `CHANGED` if the call has changed an argument, `SHARED` if its result is memory of one, or empty."""
        if not _same(self._arguments, self._before):
            return CHANGED
        arguments = list(_arrays(self._arguments))
        shared = any(np.may_share_memory(value, other) for value in _arrays(result) for other in arguments)
        return SHARED if shared else ""


def guarded(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, str]:
    """Call a function; return its result and what `Guard.broken` says of it."""
    kwargs = kwargs or {}
    guard = Guard(list(args), dict(kwargs))
    result = function(*args, **kwargs)
    return result, guard.broken(result)


def _copied(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.copy()
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _same(value: Any, before: Any) -> bool:
    if type(value) is not type(before):
        return False
    if isinstance(value, np.ndarray):
        return value.shape == before.shape and np.array_equal(value, before, equal_nan=value.dtype.kind in "fc")
    if type(value) is dict:
        return list(value) == list(before) and all(map(_same, value.values(), before.values()))
    if type(value) in (list, tuple):
        return len(value) == len(before) and all(map(_same, value, before))
    return value is before or type(value) not in (bool, int, float, str, bytes) or value == before


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if isinstance(value, np.ndarray):
        yield value
    elif type(value) is dict:
        yield from _arrays(list(value.values()))
    elif type(value) in (list, tuple):
        for item in value:
            yield from _arrays(item)
