"""Notes, in the student's process, when functions that are out of bounds are called from the student's code.

While a judged call runs, these functions are replaced by ones that do the same and note the name; only calls from the
notebook, or from a file beside it, are noted, not those of our probes, of the package or of a library. The notes cross
as plain data. What is told here is told by the student's own process: it finds what `leaning` cannot read off the
source, and a submission that is out to deceive can take it away. Classes stay as they are, as do functions that Numba
has compiled, and modules that nobody has loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from mlhood.grading.checks.references import within

Place = tuple[Any, str, Any]  # where a function stands, under which name, and the function


@contextlib.contextmanager
def noting(names: Sequence[str], namespace: Any) -> Iterator[set[str]]:
    """Note calls.

    Args:
        names: Dotted names of functions, or of modules for all of their public functions.
        namespace: The notebook's names: functions that were imported by name are replaced there, too.

    Returns:
        Of `names`, those that were called, as they come.
    """
    used: set[str] = set()
    places: list[Place] = []
    stand_ins: dict[int, Callable] = {}
    for name in names:
        for owner, attribute, function in _functions(name):
            places.append((owner, attribute, function))
            stand_ins.setdefault(id(function), _noted(name, function, used))
    try:
        for owner, attribute, function in places:
            setattr(owner, attribute, stand_ins[id(function)])
        _swap(namespace, stand_ins)
        yield used
    finally:
        for owner, attribute, function in places:
            setattr(owner, attribute, function)
        _swap(namespace, {id(stand_ins[id(function)]): function for _, _, function in places})


def _swap(namespace: Any, by: dict[int, Callable]) -> None:
    """Replace values of a namespace by others."""
    if not by or not isinstance(namespace, MutableMapping):
        return
    for name in [name for name, value in namespace.items() if id(value) in by]:
        namespace[name] = by[id(namespace[name])]


def _noted(name: str, function: Callable, used: set[str]) -> Callable:
    def stand_in(*args: Any, **kwargs: Any) -> Any:
        if _is_the_students(sys._getframe(1)):
            used.add(name)
        return function(*args, **kwargs)

    return stand_in


def _is_the_students(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__")
    if module in (None, "__main__"):
        return True
    file = Path(frame.f_code.co_filename)
    return not module.startswith("mlhood.") and file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts


def _functions(name: str) -> Iterator[Place]:
    """Where the functions stand that a dotted name means."""
    found = sys.modules.get(name)
    if found is not None:
        for loaded in _public_modules(name):
            for attribute, value in list(vars(loaded).items()):
                if not attribute.startswith("_") and _can_be_replaced(value) and _is_of(value, name):
                    yield loaded, attribute, value
        return
    owner, _, attribute = name.rpartition(".")
    module = sys.modules.get(owner)
    value = getattr(module, attribute, None) if module else None
    if _can_be_replaced(value):
        yield module, attribute, value


def _public_modules(name: str) -> list[ModuleType]:
    inside = [one for one in list(sys.modules) if one.startswith(name + ".") and "._" not in one]
    return [sys.modules[one] for one in (name, *inside) if type(sys.modules[one]) is ModuleType]  # not a lazy one


def _can_be_replaced(value: Any) -> bool:
    compiled = type(value).__module__.startswith("numba")
    return callable(value) and not isinstance(value, (type, ModuleType)) and not compiled


def _is_of(value: Any, name: str) -> bool:
    """Whether a function belongs to a module: is from there, or from where its package keeps what it shows there."""
    home = getattr(value, "__module__", None) or ""
    hidden = any(part.startswith("_") for part in home.split("."))
    return within(home, name) or not home or (hidden and home.partition(".")[0] == name.partition(".")[0])
