"""Functions that checks of several projects call in the student's process; they return plain data.

Like everything from that process, the results are only claims: checks compare them with what they compute themselves.

A request brings the function that it calls, and what that uses of its and other modules of `grading`, as text
(`rpc.sources`). So a module of probes imports names from those modules, not the modules, and keeps no state between
requests: what is to be kept is returned, and the grader passes its handle.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np

WRAPPED = ("py_func", "__wrapped__", "func", "__func__")  # of Numba, of decorators, of partial functions, of methods
MAX_WRAPPERS = 20


def empty_call(size: int) -> np.ndarray:
    """Return float32 zeros: the time of this call is the round trip alone."""
    return np.zeros(size, np.float32)


class Kept:
    """Arrays that stay in the student's process, to be used by later calls."""

    def __init__(self, arrays: Any) -> None:
        self.arrays = arrays


def keep(*arrays: np.ndarray) -> Kept:
    """Keep arrays, so that they do not travel with a call that is timed."""
    return Kept(arrays)


def unwrapped(function: Any) -> Any:
    """Return the innermost of functions that wrap one another: decorators, partial functions, methods, callables."""
    for _ in range(MAX_WRAPPERS):
        inner = next((getattr(function, name) for name in WRAPPED if hasattr(function, name)), None)
        if inner is None and not hasattr(function, "__globals__"):
            inner = vars(type(function)).get("__call__")  # of an object that can be called
        if inner is None:
            break
        function = inner
    return function


def globals_of(function: Any) -> dict[str, Any]:
    """Return the global names that a function sees, or the innermost of those that wrap one another."""
    return getattr(unwrapped(function), "__globals__", {})


@contextmanager
def patched_globals(function: Any, **replacements: Any) -> Iterator[None]:
    """Replace global names that a function sees, also as defaults of its arguments, and restore them afterwards."""
    inner, names = unwrapped(function), globals_of(function)
    before = {name: names[name] for name in replacements if name in names}
    defaults = getattr(inner, "__defaults__", None)
    if defaults:
        by_id = {id(value): replacements[name] for name, value in before.items()}
        inner.__defaults__ = tuple(by_id.get(id(value), value) for value in defaults)
    names.update(replacements)
    try:
        yield
    finally:
        if defaults:
            inner.__defaults__ = defaults
        for name in replacements:
            names.pop(name, None)
        names.update(before)


def single_thread() -> Any:
    """Limit all loaded libraries to one thread, until `restore` of the returned object is called."""
    from mlhood.measure.threading import Threads

    threads = Threads(1)
    threads.apply()
    return threads
