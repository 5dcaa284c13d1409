"""Executes, in the student's process, code of ours that arrives as text: there are no files of it to read.

The modules exist while a request is executed. Afterwards neither `sys.modules` nor `linecache` knows them, so the next
request, which brings its own text, gets new ones.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType
from typing import Any


@contextlib.contextmanager
def loaded(sources: Mapping[str, str]) -> Iterator[dict[str, ModuleType]]:
    """Execute modules, and let them be imported inside the `with` statement.

    Args:
        sources: Texts by the dotted names of the modules; a module that another one imports comes before it.

    Yields:
        The modules by name.

    Raises:
        Exception: Whatever a module raises.
    """
    modules = {name: ModuleType(name) for name in sources}
    before = {name: sys.modules[name] for name in sources if name in sys.modules}
    try:
        for name, module in modules.items():
            sys.modules[name] = module  # dataclasses and imports inside functions look here
            # linecache stores nothing for a file name in angle brackets
            exec(compile(sources[name], f"<{name}>", "exec", dont_inherit=True), vars(module))  # noqa: S102
        yield modules
    finally:
        for name in sources:
            sys.modules.pop(name, None)
        sys.modules.update(before)


def bind(sources: Mapping[str, str], names: Mapping[str, tuple[str, str]], namespace: dict[str, Any]) -> None:
    """Execute modules, and bind some of their names in a notebook.

    Args:
        sources: As of `loaded`.
        names: Module and name there, by the name to bind.
        namespace: The notebook's names.
    """
    with loaded(sources) as modules:
        namespace.update({name: getattr(modules[module], attribute) for name, (module, attribute) in names.items()})
