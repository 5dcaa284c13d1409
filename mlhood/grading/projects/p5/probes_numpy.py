"""Questions about functions in NumPy, asked in the student's process; the answers are claims, which checks compare."""

from __future__ import annotations

import gc
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

FOREIGN = ("jax", "jaxlib", "torch")


def numpy_only(function: Callable, args: list[Any], named: dict[str, Any]) -> dict[str, Any]:
    """Call a function and look at what runs meanwhile.

    Returns:
        Its `result`, the number of `lines` of Python that ran, and the `foreign` packages that took part.
    """
    lines, foreign = 0, set()

    def watch(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        if event == "call":
            foreign.add(str(frame.f_globals.get("__name__", "")).partition(".")[0])
        return watch

    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # JAX is told of every collection: its frames would pass for the function's
    sys.settrace(watch)
    try:
        result = function(*args, **named)
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    foreign.add(type(result).__module__.partition(".")[0])
    return {"result": result, "lines": lines, "foreign": sorted(foreign.intersection(FOREIGN))}


# -- P5.5: a variable is told as [number, *shape], a number as itself


def recorded(function: Callable, shapes: list[list[int]], steps: list[list[Any]]) -> list[dict[str, Any]]:
    """What `record` does with operations in turn.

    Args:
        function: The student's `record`.
        shapes: Of variables that are there before.
        steps: Operation, and operands: whole numbers are places among all variables so far, others numbers.

    Returns:
        Of each step the variable that was `returned`, the equations that were `appended`, and the `operands`.
    """
    from mlhood.jaxlab.tracing.tracer import fresh

    values: list[Any] = [fresh(tuple(shape)) for shape in shapes]
    equations: list[Any] = []
    found = []
    for op, places in steps:
        operands = tuple(values[one] if isinstance(one, int) else one for one in places)
        before = len(equations)
        values.append(function(equations, op, operands))
        appended = [_told_equation(one) for one in equations[before:]]
        told = {"returned": _told(values[-1]), "appended": appended, "operands": [_told(one) for one in operands]}
        found.append(told)
    return found


def evaluated(function: Callable, program: list[Any], arguments: list[np.ndarray]) -> Any:
    """What `evaluate` returns for a program."""
    return function(_program(program), *arguments)


def kept(function: Callable, program: list[Any]) -> list[Any] | None:
    """What `live` leaves of a program; None if it is no program."""
    from mlhood.jaxlab.tracing.tracer import Program

    found = function(_program(program))
    if not isinstance(found, Program):
        return None
    equations = [_told_equation(one) for one in found.equations]
    return [[_told(one) for one in found.inputs], equations, [_told(one) for one in found.outputs]]


def _program(told: list[Any]) -> Any:
    from mlhood.jaxlab.tracing.tracer import Equation, Program

    inputs, equations, outputs = told
    made = [Equation(op, tuple(map(_operand, operands)), _operand(output)) for op, operands, output in equations]
    return Program(tuple(map(_operand, inputs)), tuple(made), tuple(map(_operand, outputs)))


def _operand(told: Any) -> Any:
    from mlhood.jaxlab.tracing.tracer import Variable

    return Variable(told[0], tuple(told[1:])) if isinstance(told, list) else told


def _told(value: Any) -> Any:
    from mlhood.jaxlab.tracing.tracer import Variable

    return [value.number, *value.shape] if isinstance(value, Variable) else value


def _told_equation(equation: Any) -> list[Any]:
    return [equation.op, [_told(one) for one in equation.inputs], _told(equation.output)]


# -- P5.6


def _times(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    return g * b, g * a


def _both(g: Any, y: Any, a: Any, b: Any) -> tuple[Any, Any]:
    return g, g  # the same array twice: who adds to it in place changes both


def _scaled(g: Any, y: Any, x: Any, factor: float) -> tuple[Any]:
    return (g * factor,)


def _tanh(g: Any, y: Any, x: Any) -> tuple[Any]:
    return (g * (1 - y * y),)


def _weighted(g: Any, y: Any, x: Any, labels: Any) -> tuple[Any, None]:
    return g * labels, None


RULES: dict[str, Callable] = {"mul": _times, "add": _both, "scale": _scaled, "tanh": _tanh, "weighted_sum": _weighted}


def backed(function: Callable, values: list[np.ndarray], entries: list[list[Any]]) -> Any:
    """What `backward` says of a tape.

    Args:
        function: The student's `backward`.
        values: In the order of the tape.
        entries: Operation of `RULES`, places of what it reads, place of what it makes, attributes.
    """
    from mlhood.jaxlab.autodiff.tape import Entry, Tape

    tape = Tape()
    tape.values.extend(values)
    tape.entries.extend(Entry(op, tuple(inputs), output, attributes) for op, inputs, output, attributes in entries)
    return function(tape, RULES)
