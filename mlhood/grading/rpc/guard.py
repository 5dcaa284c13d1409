"""Whether a call leaves its arguments alone, and returns new memory.

It runs in the student's process, where probes may use it, too; nothing that it says earns points. Results are kept for
a while, so that their memory is not freed: where a later result is in the same place, the function has kept it.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any

import numpy as np

CHANGED, SHARED, REUSED = "changed", "shared", "reused"
MAX_KEPT_BYTES = 1 << 24
_results: deque[np.ndarray] = deque(maxlen=8)  # of earlier calls, whatever the function


class RuleBroken(Exception):
    """A function of the notebook breaks a rule; the message is what `CallGuard.broken` says, and its name."""

    def __init__(self, rule: str, function: Callable[..., Any]) -> None:
        super().__init__(f"{rule} {getattr(function, '__name__', type(function).__name__)}")


class CallGuard:
    """Compares the arguments of a call before and after it.

    Args:
        arguments: Of the call; arrays, tensors and plain data are compared, other objects are not.
    """

    def __init__(self, *arguments: object) -> None:
        self._arguments = arguments
        self._before = _copied(arguments)

    def broken(self, result: object) -> str:
        """Return the rule that the call has broken, or an empty text.

        It is `CHANGED` if an argument is not as it was, `SHARED` if the result is memory of one, and `REUSED` if it is
        memory of an earlier result.
        """
        if not _same(self._arguments, self._before):
            return CHANGED
        results = list(_arrays(result))
        if _share(results, list(_arrays(self._arguments))):
            return SHARED
        if _share(results, list(_results)):
            return REUSED
        _results.extend(value for value in results if value.nbytes <= MAX_KEPT_BYTES)
        return ""


def _share(arrays: list[np.ndarray], others: list[np.ndarray]) -> bool:
    return any(np.may_share_memory(array, other) for array in arrays for other in others)


def guarded(
    function: Callable[..., Any], args: Sequence[Any] = (), kwargs: Mapping[str, Any] | None = None
) -> tuple[Any, str]:
    """Call a function; return its result and what `CallGuard.broken` says of it."""
    kwargs = kwargs or {}
    guard = CallGuard(list(args), dict(kwargs))
    result = function(*args, **kwargs)
    return result, guard.broken(result)


def call_guarded(function: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    """Call a function and return its result.

    Raises:
        RuleBroken: The call breaks a rule.
    """
    result, broken = guarded(function, args, kwargs)
    if broken:
        raise RuleBroken(broken, function)
    return result


def _array(value: Any) -> np.ndarray | None:
    """Return an array, or the memory of a torch tensor as one; None of any other value."""
    torch = sys.modules.get("torch")
    if torch is not None and isinstance(value, torch.Tensor):
        return value.detach().cpu().numpy()
    return value if isinstance(value, np.ndarray) else None


def _copied(value: Any) -> Any:
    if (array := _array(value)) is not None:
        return array.copy()
    if type(value) is dict:
        return {key: _copied(item) for key, item in value.items()}
    if type(value) in (list, tuple):
        return type(value)(map(_copied, value))
    return value


def _same(value: Any, before: Any) -> bool:
    if (array := _array(value)) is not None:
        return array.shape == before.shape and np.array_equal(array, before, equal_nan=array.dtype.kind in "fc")
    if type(value) is not type(before):
        return False
    if type(value) is dict:
        return list(value) == list(before) and all(map(_same, value.values(), before.values()))
    if type(value) in (list, tuple):
        return len(value) == len(before) and all(map(_same, value, before))
    return value is before or type(value) not in (bool, int, float, str, bytes) or value == before


def _arrays(value: Any) -> Iterator[np.ndarray]:
    if (array := _array(value)) is not None:
        yield array
    elif type(value) is dict:
        yield from _arrays(list(value.values()))
    elif type(value) in (list, tuple):
        for item in value:
            yield from _arrays(item)
