"""The table of targets: what can run a graph."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError

# From the inputs' arrays by name to the outputs'.
Runner = Callable[[Mapping[str, Any]], dict[str, np.ndarray]]

DEFAULT = "interpreter"
TARGETS: dict[str, Callable[[Graph], Runner]] = {"interpreter": lambda graph: Interpreter(graph).run}


def check_target(name: str) -> None:
    """Check the name of a target.

    Raises:
        CompilerError: There is none of this name.
    """
    if name not in TARGETS:
        raise CompilerError("there is no such target", expected=", ".join(TARGETS), got=repr(name))
