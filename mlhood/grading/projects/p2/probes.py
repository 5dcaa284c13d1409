"""Questions that need the student's objects, asked in their process; the answers are claims, which checks compare."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from mlhood.compiler.hir import Graph
from mlhood.compiler.onnx.importer import import_model
from mlhood.measure.traffic import Counted


def attempt(function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """What a function returns, or the error that it raises: for calls that it should refuse."""
    try:
        return {"returned": function(*args, **kwargs)}
    except NotImplementedError:
        raise
    except Exception as error:  # whatever the student's code raises is an answer
        return {"raised": type(error).__name__, "message": str(error)[:300]}


def counted(function: Callable, x: np.ndarray, w: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    """Run `linear_relu` on arrays that count; y holds NaN before, so that what is not written shows."""
    y = Counted(np.full((len(x), len(w)), np.nan, np.float32))
    function(Counted(x), Counted(w), Counted(b), y)
    return {"y": y.array, "reads": y.reads, "writes": y.writes}


def imported(rules: Mapping[str, Callable], data: bytes) -> Graph:
    """A model, imported with the student's rules before the package's own."""
    return import_model(data, rules=rules)


def rewritten(function: Callable, graph: Graph) -> dict[str, Any]:
    """What a rewrite makes of a graph, in place or as a new one, and what it says about having changed it."""
    said = function(graph)
    if isinstance(said, tuple) and len(said) == 2:
        first, said = said
        graph = first if isinstance(first, Graph) else graph
    return {"graph": said if isinstance(said, Graph) else graph, "said": said if not isinstance(said, Graph) else None}
