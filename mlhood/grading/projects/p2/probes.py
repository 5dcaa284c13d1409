"""Probes that run in the student's process, on the student's objects; their answers are claims to be checked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from copy import deepcopy
from dataclasses import replace
from typing import Any

import numpy as np

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.lir.instructions import Alloc, Buffer, Dealloc, Instruction, TensorView, Weight
from mlhood.compiler.lir.parse import parse
from mlhood.compiler.lir.program import Lifetime, Program
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.lir.verify import verify
from mlhood.errors import CompilerError
from mlhood.grading.rpc.guard import CHANGED, RuleBroken


def attempt(function: Callable, args: tuple) -> dict[str, Any]:
    """Return a call's result or the exception that it raises: for calls that should raise one."""
    try:
        return {"returned": function(*args)}
    except NotImplementedError:
        raise
    except Exception as error:  # the student's code may raise anything
        return {"raised": type(error).__name__, "message": str(error)[:300]}


MAX_REWRITES = 8  # more than the nodes of a graph that is to be rewritten


def shared_part(name: str, depth: int, last: bool) -> tuple[slice, slice]:
    """Return the index of the first or last elements of y that have as many elements as x, w or b."""
    size = 1 if name == "b" else depth
    end = slice(-size, None) if last else slice(size)
    return (slice(None), end) if name == "x" else (end, slice(None))


def as_input(name: str, part: np.ndarray) -> np.ndarray:
    """Return a view of a part of y in the shape of x, w or b."""
    return {"x": part, "w": part.T, "b": part[0]}[name]


def filled(
    function: Callable,
    arrays: Mapping[str, np.ndarray],
    extra: Mapping[str, float],
    dtype: str = "float32",
    shared: str = "",
    last: bool = False,
) -> np.ndarray:
    """Return y as `linear_relu` leaves it; it is NaN at first, so that unwritten elements show.

    Args:
        function: The student's.
        arrays: x, w and b, which it cannot write.
        extra: Its last argument in a variant.
        dtype: Of y.
        shared: Which of the three has the memory of a part of y, if any.
        last: Whether that is the last part.
    """
    inputs = dict(arrays)
    y = np.full((len(inputs["x"]), len(inputs["w"])), np.nan).astype(dtype)
    if shared:
        view = as_input(shared, y[shared_part(shared, inputs["x"].shape[1], last)])
        view[...], inputs[shared] = inputs[shared], view
    for array in inputs.values():
        array.flags.writeable = False
    function(*(inputs[name] for name in ("x", "w", "b")), y, **extra)
    return y


def rewritten(function: Callable, graph: Graph, arguments: Mapping[str, Any]) -> dict[str, Any]:
    """Apply a rewrite, with these arguments, until it reports no more changes; return the graph and what it reports.

    Returns:
        The graph, changed in place; and the report of the first call, and of the last.
    """
    before = deepcopy(dict(arguments))
    first = last = function(graph, **arguments)
    for _ in range(MAX_REWRITES):
        if not isinstance(last, bool | int | np.bool_ | np.integer) or not last:
            break
        last = function(graph, **arguments)
    _require_unchanged(function, arguments == before)
    first, last = (None if isinstance(report, Graph) else report for report in (first, last))
    return {"graph": graph, "changed": first, "last": last}


def _require_unchanged(function: Callable, unchanged: bool) -> None:
    """Raise RuleBroken if a call has changed its arguments; `Guard` compares no instructions."""
    if not unchanged:
        raise RuleBroken(CHANGED, function)


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
    if not isinstance(instructions, list) or not all(isinstance(each, Instruction) for each in instructions):
        return {"returned": instructions}
    program.instructions.extend(_with_plain_shapes(instructions))
    try:
        verify(program)
    except CompilerError as error:
        return {"error": error.what, **{key: str(part) for key, part in error.parts.items()}}
    return {"text": to_text(program)}


def _with_plain_shapes(instructions: Sequence[Instruction]) -> list[Instruction]:
    """Return instructions in whose types every shape is a tuple of Python's integers: NumPy's are as good."""
    known: dict[Buffer, Buffer] = {}

    def plain(buffer: Buffer) -> Buffer:
        if not isinstance(buffer, Buffer) or isinstance(buffer, Weight):
            return buffer
        if buffer not in known:
            shape = tuple(int(axis) if isinstance(axis, np.integer) else axis for axis in buffer.type.shape)
            known[buffer] = Buffer(buffer.name, replace(buffer.type, shape=shape))
        return known[buffer]

    return [
        TensorView(plain(each.buffer), plain(each.source)) if isinstance(each, TensorView) else each.renamed(plain)
        for each in instructions
    ]


def ranges(function: Callable, text: str, constants: Mapping[str, np.ndarray]) -> Any:
    """Call `live_ranges` with the instructions of a program, without those that say when memory is needed."""
    parsed = parse(text, constants).instructions
    instructions = [each for each in parsed if not isinstance(each, (Alloc, Dealloc))]
    before = list(instructions)
    answer = function(instructions)
    _require_unchanged(function, instructions == before)
    return answer


def allocated(function: Callable, buffers: Sequence[Sequence[Any]], alignment: int) -> Any:
    """Call `allocate` with lifetimes, each as (name, bytes, first, last)."""
    lifetimes = [Lifetime(*buffer) for buffer in buffers]
    before = list(lifetimes)
    answer = function(lifetimes, alignment)
    _require_unchanged(function, lifetimes == before)
    return answer
