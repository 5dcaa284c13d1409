"""Probes that run in the student's process, on the student's objects; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import pandas as pd

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.lir.instructions import Alloc, Dealloc, Instruction
from mlhood.compiler.lir.parse import parse
from mlhood.compiler.lir.program import Lifetime, Program
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from mlhood.grading.checks.probes import Kept
from mlhood.grading.rpc.guard import CHANGED
from mlhood.measure.traffic import Counted


def attempt(function: Callable, args: tuple, kwargs: Mapping[str, Any]) -> dict[str, Any]:
    """Return a call's result or the exception that it raises: for calls that should raise one."""
    try:
        return {"returned": function(*args, **kwargs)}
    except NotImplementedError:
        raise
    except Exception as error:  # the student's code may raise anything
        return {"raised": type(error).__name__, "message": str(error)[:300]}


def refused(rules: Mapping[str, Callable], data: bytes) -> dict[str, Any]:
    """Import a model that the student's rules should refuse; return the error that a rule raises."""
    try:
        import_model(data, rules=rules)
    except NotImplementedError:
        raise
    except Exception as error:  # the importer's, from that of the student's code
        cause = error.__cause__ or error
        return {"raised": type(cause).__name__, "message": str(cause)[:300]}
    return {"returned": "a graph"}


MAX_REWRITES = 8  # more than the nodes of a graph that is to be rewritten


class WholeArrayError(TypeError):
    """A loop nest hands an array, or a row of one, to NumPy."""

    def __init__(self) -> None:
        super().__init__("NumPy or `@` is given whole rows or arrays: write the loops, and read x[i, k] and w[j, k]")


class Elements:
    """Elements that were read by a slice: to be indexed and iterated over, but not to be computed with as a whole.

    Args:
        values: Read-only array of one axis or more.
    """

    __array_ufunc__ = None  # NumPy leaves operators to this class

    def __init__(self, values: np.ndarray) -> None:
        self._values = values

    def __len__(self) -> int:
        return len(self._values)

    def __getitem__(self, index: Any) -> Any:
        value = self._values[index]
        return Elements(value) if isinstance(value, np.ndarray) else value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise WholeArrayError

    def _refused(self, *_: object) -> Any:
        raise WholeArrayError

    __matmul__ = __rmatmul__ = __mul__ = __rmul__ = __add__ = __radd__ = _refused


class Looped(Counted):
    """A counting array that only loops can compute with."""

    __slots__ = ()
    __array_ufunc__ = None

    def __getitem__(self, index: Any) -> Any:
        """Read an element; a slice reads all of its elements."""
        value = super().__getitem__(index)
        return Elements(value) if isinstance(value, np.ndarray) else value

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        raise WholeArrayError

    def __matmul__(self, other: Any) -> np.ndarray:
        raise WholeArrayError

    def __rmatmul__(self, other: Any) -> np.ndarray:
        raise WholeArrayError


def counted(
    function: Callable, x: np.ndarray, w: np.ndarray, b: np.ndarray, extra: Mapping[str, float] | None = None
) -> dict[str, Any]:
    """Run `linear_relu` on arrays that count accesses; y is NaN at first, so that unwritten elements show."""
    result = np.full((len(x), len(w)), np.nan, np.float32)
    inputs, y = [Looped(each) for each in (x, w, b)], Looped(result)
    function(*inputs, y, **(extra or {}))
    inputs_read, written = sum(each.reads for each in inputs), any(each.writes for each in inputs)
    broken = CHANGED if written else ""
    return {"y": result, "reads": y.reads, "writes": y.writes, "inputs": inputs_read, "broken": broken}


def imported(rules: Mapping[str, Callable], data: bytes) -> Graph:
    """Import a model; the student's rules take precedence over the package's."""
    return import_model(data, rules=rules)


def rewritten(function: Callable, graph: Graph, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a rewrite, with these arguments, until it reports no more changes; return the graph and what it reports.

    Returns:
        The graph, changed in place or new; the report of the first call (None: no report); and of the last.
    """
    graph, first = _apply(function, graph, arguments)
    last = first
    for _ in range(MAX_REWRITES):
        if not isinstance(last, bool | int | np.bool_) or not last:
            break
        graph, last = _apply(function, graph, arguments)
    return {"graph": graph, "changed": first, "last": last}


def _apply(function: Callable, graph: Graph, arguments: Mapping[str, Any]) -> tuple[Graph, Any]:
    changed = function(graph, **arguments)
    if isinstance(changed, tuple) and len(changed) == 2:
        first, changed = changed
        graph = first if isinstance(first, Graph) else graph
    return (changed, None) if isinstance(changed, Graph) else (graph, changed)


def answered(
    function: Callable, results: Mapping[str, Sequence[Any]], layers: Mapping[str, Sequence[Any]]
) -> dict[str, Any]:
    """Call `answers` with two tables, each given as its columns; layers are the index of the second."""
    return function(pd.DataFrame(dict(results)), pd.DataFrame(dict(layers)).set_index("layer"))


def by_hand(function: Callable, types: Mapping[str, TensorType], y: TensorType, *arguments: Any) -> dict[str, Any]:
    """Return the text of the program of a function's instructions, or what the verifier says of it.

    Args:
        function: From the buffers of inputs and output, and arguments, to instructions.
        types: Of the inputs, by name.
        y: Type of the output.
        arguments: The function's others.
    """
    program = Program("by hand")
    inputs = [program.declare_input(name, type) for name, type in types.items()]
    instructions = function(*inputs, program.declare_output("y", y), *arguments)
    if not isinstance(instructions, (list, tuple)) or not all(isinstance(each, Instruction) for each in instructions):
        return {"returned": instructions}
    program.instructions.extend(instructions)
    try:
        verify(program)
    except CompilerError as error:
        return {"error": error.what, **{key: str(part) for key, part in error.parts.items()}}
    return {"text": to_text(program)}


def ranges(function: Callable, text: str) -> Any:
    """Call `live_ranges` with the instructions of a program, without those that say when memory is needed."""
    instructions = parse(text).instructions
    return function([each for each in instructions if not isinstance(each, (Alloc, Dealloc))])


def allocated(
    function: Callable, buffers: Sequence[Sequence[Any]], alignment: int, extra: Mapping[str, Any] | None = None
) -> Any:
    """Call `allocate` with lifetimes, each as (name, bytes, first, last), and what a variant gives it besides."""
    return function([Lifetime(*buffer) for buffer in buffers], alignment, **(extra or {}))


def logits_of(side: Callable, kept: Kept, starts: Sequence[int], count: int) -> np.ndarray:
    """Run one column of the table on some of the images that were kept, so many at once from each of these positions.

    Returns:
        float32 [len(starts), count, 10].
    """
    (images,) = kept.arrays
    return np.stack([np.asarray(side(images[start : start + count])) for start in starts])
