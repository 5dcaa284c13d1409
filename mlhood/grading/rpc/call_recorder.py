"""Records, in the student's process, which forbidden functions the student's code calls.

While a judged call runs, these functions are replaced by wrappers that record the name and delegate. Only calls from
the notebook, or from a file beside it, are recorded, not those of our probes, of the package or of a library. The
record is plain data from the student's own process: it finds uses that the analysis of the source cannot see, and a
hostile submission can suppress it. Classes are not wrapped, nor functions compiled by Numba, nor modules that are not
loaded.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, MutableMapping, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

Binding = tuple[ModuleType, str, Any]  # a module, an attribute, and the function that it holds
# by module name: the sizes of its submodules when its functions were searched for, and these
_cache: dict[str, tuple[list[tuple[int, int]], Sequence[Binding]]] = {}


@contextlib.contextmanager
def record_calls(names: Sequence[str], namespace: Any) -> Iterator[set[str]]:
    """Record calls of functions.

    Args:
        names: Dotted names of functions, or of modules for all of their public functions.
        namespace: The notebook's names: functions that were imported by name are replaced there, too.

    Yields:
        The called ones of `names`, added as the calls happen.
    """
    called: set[str] = set()
    bindings: list[Binding] = []
    wrappers: dict[int, Callable] = {}
    for name in names:
        for module, attribute, function in _functions(name):
            bindings.append((module, attribute, function))
            wrappers.setdefault(id(function), _wrapper(name, function, called))
    try:
        for module, attribute, function in bindings:
            setattr(module, attribute, wrappers[id(function)])
        _replace_values(namespace, wrappers)
        yield called
    finally:
        for module, attribute, function in bindings:
            setattr(module, attribute, function)
        _replace_values(namespace, {id(wrappers[id(function)]): function for _, _, function in bindings})


def _replace_values(namespace: Any, replacements: dict[int, Callable]) -> None:
    if not replacements or not isinstance(namespace, MutableMapping):
        return
    for name in [name for name, value in namespace.items() if id(value) in replacements]:
        namespace[name] = replacements[id(namespace[name])]


def _wrapper(name: str, function: Callable, called: set[str]) -> Callable:
    def wrapper(*args: Any, **kwargs: Any) -> Any:
        if _is_student_code(sys._getframe(1)):
            called.add(name)
        return function(*args, **kwargs)

    return wrapper


def _is_student_code(frame: FrameType) -> bool:
    module = frame.f_globals.get("__name__")
    if module in (None, "__main__"):
        return True
    file = Path(frame.f_code.co_filename)
    return not module.startswith("mlhood.") and file.is_relative_to(Path.cwd()) and "site-packages" not in file.parts


def _functions(name: str) -> Sequence[Binding]:
    """Return the functions that a dotted name denotes, with the module attributes that hold them."""
    if sys.modules.get(name) is not None:
        return _public_functions(name)
    parent, _, attribute = name.rpartition(".")
    module = sys.modules.get(parent)
    value = getattr(module, attribute, None) if module else None
    return [(module, attribute, value)] if module and _can_wrap(value) else []


def _public_functions(name: str) -> Sequence[Binding]:
    """Return the public functions of a module and its submodules; found once, as torch and JAX have thousands."""
    modules = _public_modules(name)
    state = [(id(module), len(vars(module))) for module in modules]
    known, functions = _cache.get(name, (None, ()))
    if known != state:
        functions = [
            (module, attribute, value)
            for module in modules
            for attribute, value in list(vars(module).items())
            if not attribute.startswith("_") and _can_wrap(value) and _belongs_to(value, name)
        ]
        _cache[name] = state, functions
    return [binding for binding in functions if _is_bound(*binding)]  # the notebook may have replaced some since


def _is_bound(module: ModuleType, attribute: str, value: Any) -> bool:
    return vars(module).get(attribute) is value


def _public_modules(name: str) -> list[ModuleType]:
    submodules = [module for module in list(sys.modules) if module.startswith(name + ".") and "._" not in module]
    modules = [sys.modules[module] for module in (name, *submodules)]
    return [module for module in modules if type(module) is ModuleType]  # lazy modules are of a subclass


def _can_wrap(value: Any) -> bool:
    compiled = type(value).__module__.startswith("numba")
    return callable(value) and not isinstance(value, (type, ModuleType)) and not compiled


def _belongs_to(value: Any, name: str) -> bool:
    """Whether a function is defined in a module, or in a private module of the same package that it re-exports."""
    home = getattr(value, "__module__", None) or ""
    private = any(part.startswith("_") for part in home.split("."))
    return is_within(home, name) or not home or (private and home.partition(".")[0] == name.partition(".")[0])


def is_within(dotted: str, scope: str) -> bool:
    """Whether a dotted name is `scope` or begins with it: `torch.nn.functional` is within `torch.nn`."""
    return dotted == scope or dotted.startswith(scope + ".")
