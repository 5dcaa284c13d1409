"""Probes of NumPy functions that run in the student's process; their answers are claims to be checked."""

from __future__ import annotations

import gc
import itertools
import sys
from collections.abc import Callable
from typing import Any

import numpy as np

from mlhood.grading.rpc.guard import CHANGED, CallGuard, call_guarded, guarded


def counted_lines(function: Callable, args: list[Any], kwargs: dict[str, Any]) -> dict[str, Any]:
    """Call a function and trace the Python code that it runs.

    Returns:
        Its `result`, the number of `lines` of Python run, and the rule `broken`.
    """
    lines = 0

    def trace(frame: Any, event: str, argument: Any) -> Any:
        nonlocal lines
        lines += 1
        return trace

    guard = CallGuard(list(args), dict(kwargs))
    before, collecting = sys.gettrace(), gc.isenabled()
    gc.disable()  # JAX has a callback for garbage collections, whose lines would be taken for the function's
    sys.settrace(trace)
    try:
        result = function(*args, **kwargs)
    finally:
        sys.settrace(before)
        if collecting:
            gc.enable()
    return {"result": result, "lines": lines, "broken": guard.broken(result)}


# -- P5.5: a variable is [number, *shape] in plain data, a number is a constant


def recorded(function: Callable, shapes: list[list[int]], steps: list[list[Any]]) -> list[dict[str, Any]]:
    """Call `record` for one operation after another.

    Args:
        function: The student's `record`.
        shapes: Shapes of the existing variables.
        steps: Operation and operands: indices of all variables so far, or numbers, each in its own list.

    Returns:
        For each step the `returned` variable, the `operands`, and all `equations` after it.
    """
    from mlhood.jaxlab.tracing.tracer import Variable, fresh

    values: list[Any] = [fresh(tuple(shape)) for shape in shapes]
    equations: list[Any] = []
    reports = []
    for op, indices in steps:
        operands = tuple(index[0] if isinstance(index, list) else values[index] for index in indices)
        values.append(function(equations, op, operands))
        if not isinstance(values[-1], Variable):
            raise TypeError(f"`record` returns no Variable, but {values[-1]!r}")
        written = list(map(_plain_equation, equations))
        reports.append({"returned": _plain(values[-1]), "operands": list(map(_plain, operands)), "equations": written})
    return reports


def evaluated(function: Callable, program: list[Any], *arguments: np.ndarray) -> dict[str, Any]:
    """Call `evaluate` on a program: return its `outputs`, and the rule that is `broken`.

    A dictionary from variables is returned as one from their numbers. An output of the program that is its input is the
    argument itself; where it is another array, this is said in its place.
    """
    outputs, broken = guarded(function, [program_of(program), *arguments])
    inputs, _, wanted = program
    if isinstance(outputs, tuple) and len(outputs) == len(wanted):
        own = [arguments[inputs.index(output)] if output in inputs else None for output in wanted]
        outputs = tuple(
            output
            if argument is None or output is argument
            else "another array: return the argument itself, not a copy"
            for output, argument in zip(outputs, own, strict=True)
        )
    if isinstance(outputs, dict):
        outputs = {getattr(variable, "number", -1): value for variable, value in outputs.items()}
    return {"outputs": outputs, "broken": broken if broken == CHANGED else ""}


def live_result(function: Callable, program: list[Any]) -> dict[str, Any]:
    """Return the `program` that `live` returns, in plain data, and the rule `broken`."""
    from mlhood.jaxlab.tracing.tracer import Program

    argument = program_of(program)
    result = function(argument)
    if not isinstance(result, Program):
        raise TypeError(f"`live` returns no Program, but {result!r}")
    inputs, outputs = (list(map(_plain, variables)) for variables in (result.inputs, result.outputs))
    plain = [inputs, list(map(_plain_equation, result.equations)), outputs]
    return {"program": plain, "broken": "" if argument == program_of(program) else CHANGED}


def program_of(plain: list[Any]) -> Any:
    """Return a program that is given in plain data."""
    from mlhood.jaxlab.tracing.tracer import Equation, Program

    inputs, equations, outputs = plain
    built = [Equation(op, tuple(map(_operand, operands)), _operand(output)) for op, operands, output in equations]
    return Program(tuple(map(_operand, inputs)), tuple(built), tuple(map(_operand, outputs)))


def _operand(plain: Any) -> Any:
    from mlhood.jaxlab.tracing.tracer import Variable

    return Variable(plain[0], tuple(plain[1:])) if isinstance(plain, list) else plain


def _plain(value: Any) -> Any:
    from mlhood.jaxlab.tracing.tracer import Variable

    return [value.number, *value.shape] if isinstance(value, Variable) else value


def _plain_equation(equation: Any) -> list[Any]:
    return [equation.op, list(map(_plain, equation.inputs)), _plain(equation.output)]


# -- P5.6


def apart(function: Callable, *args: Any, **attributes: Any) -> Any:
    """Return the gradients that a rule returns, or a text if two of them have memory in common."""
    gradients = call_guarded(function, *args, **attributes)
    arrays = [part for part in gradients if isinstance(part, np.ndarray)] if isinstance(gradients, list | tuple) else []
    shared = any(np.may_share_memory(*pair) for pair in itertools.combinations(arrays, 2))
    return "the same memory for two gradients" if shared else gradients


RULES: dict[str, Callable] = {
    "mul": lambda g, y, a, b: (g * b, g * a),
    "add": lambda g, y, a, b: (g, g),  # the same array twice: adding to one in place changes both
    "scale": lambda g, y, x, factor: (g * factor,),
    "tanh": lambda g, y, x: (g * (1 - y * y),),
    "weighted_sum": lambda g, y, x, labels: (g * labels, None),
}


def backward_result(function: Callable, values: list[np.ndarray], entries: list[list[Any]]) -> dict[str, Any]:
    """Call `backward` on a tape: return its `gradients`, and whether it has `changed` the tape.

    Args:
        function: The student's `backward`.
        values: The values of the tape, in order.
        entries: Operation of `RULES`, indices of its inputs, index of its output, attributes.
    """
    from mlhood.jaxlab.autodiff.tape import Entry, Tape

    tape = Tape()
    tape.values.extend(values)
    tape.entries.extend(Entry(op, tuple(inputs), output, attributes) for op, inputs, output, attributes in entries)
    before = [value.copy() for value in tape.values], list(tape.entries)
    gradients = function(tape, RULES)
    same = len(tape.values) == len(before[0]) and all(map(np.array_equal, tape.values, before[0]))
    return {"gradients": gradients, "changed": not same or tape.entries != before[1]}
