"""Probes that run in the student's process, on the student's objects; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlhood.compiler.hir import Graph
from mlhood.compiler.onnx.importer import import_model
from mlhood.measure.traffic import Counted


def attempt(function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's result or the exception that it raises: for calls that should raise one."""
    try:
        return {"returned": function(*args, **kwargs)}
    except NotImplementedError:
        raise
    except Exception as error:  # the student's code may raise anything
        return {"raised": type(error).__name__, "message": str(error)[:300]}


def counted(function: Callable, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Run `linear_relu` on arrays that count accesses; y is NaN at first, so that unwritten elements show."""
    result = np.full((len(x), len(w)), np.nan, np.float32)
    y = Counted(result)
    function(Counted(x), Counted(w), Counted(b), y)
    return {"y": result, "reads": y.reads, "writes": y.writes}


def imported(rules: Mapping[str, Callable], data: bytes) -> Graph:
    """Import a model; the student's rules take precedence over the package's."""
    return import_model(data, rules=rules)


def rewritten(function: Callable, graph: Graph) -> dict[str, Any]:
    """Apply a rewrite; return the graph, changed in place or new, and whether it reports a change (None: no report)."""
    changed = function(graph)
    if isinstance(changed, tuple) and len(changed) == 2:
        first, changed = changed
        graph = first if isinstance(first, Graph) else graph
    if isinstance(changed, Graph):
        return {"graph": changed, "changed": None}
    return {"graph": graph, "changed": changed}
