"""Executes, in the student's process, code of ours that arrives as text: there are no files of it to read.

The modules exist while a request is executed. Afterwards neither `sys.modules` nor `linecache` knows them, so the next
request, which brings its own text, gets new ones.
"""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Iterator, Mapping
from types import ModuleType


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
