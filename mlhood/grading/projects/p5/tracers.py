"""Checks of P5.5: a tracer's three functions, on programs that are told in plain data.

A variable is told as [number, *shape], a number as itself; an equation as [operation, operands, variable].
"""

from __future__ import annotations

from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
Plain = list[Any]
Step = tuple[str, list[Any], list[int]]
RECORD = "output = fresh(SHAPES[op](...)); equations.append(Equation(op, tuple(operands), output)); return output"


def _steps(submission: Submission, numbers: bool) -> tuple[list[list[int]], list[Step]]:
    """Shapes of inputs, and operations: name, operands by their place (numbers as floats), shape of the result."""
    m, k, n = (int(size) for size in submission.rng.permutation([2, 3, 4, 5, 6])[:3])
    shapes = [[m, k], [k, n], [n]]
    return shapes, [
        ("matmul", [0, 1], [m, n]),
        ("add", [3, 2], [m, n]),
        ("mul", [2.5 if numbers else 3, 4], [m, n]),
        ("sub", [5, 4], [m, n]),
        ("transpose", [6], [n, m]),
        ("sum", [7], []),
    ]


def _recorded(
    submission: Submission, *, numbers: bool = False
) -> tuple[list[dict[str, Any]], list[tuple[str, list[Any], list[int]]]]:
    """What `record` did in each step, and what the steps were."""
    shapes, steps = _steps(submission, numbers)
    asked = [[op, list(operands)] for op, operands, _ in steps]
    told = submission.call(PROBES + "recorded", submission.value("record"), shapes, asked)
    found = [dict(expect.mapping(one, ("returned", "appended", "operands"), "what `record` does"))
             for one in told] if isinstance(told, list | tuple) else []  # fmt: skip
    expect.true(len(found) == len(steps), "`record` did not come to the end", got=told)
    for one, (op, _, _) in zip(found, steps, strict=True):
        variable = isinstance(one["returned"], list | tuple) and bool(one["returned"])
        expect.true(variable, "`record` returns no variable", expected="Variable", got=one["returned"], given=op,
                    hint=RECORD)  # fmt: skip
    return found, steps


@points(1)
def operations_are_written_down(submission: Submission) -> None:
    """`record` appends one equation, of what it was given and of the variable that it returns."""
    found, steps = _recorded(submission)
    for one, (op, _, _) in zip(found, steps, strict=True):
        appended = one["appended"] if isinstance(one["appended"], list | tuple) else []
        expect.true(len(appended) == 1, "other than one equation is appended", expected="one", got=len(appended),
                    given=op, hint=RECORD)  # fmt: skip
        name, operands, output = appended[0]
        expect.equal(name, op, "the equation has another operation", given=op, hint=RECORD)
        expect.equal(_listed(operands), _listed(one["operands"]), "the equation reads something else", given=op,
                     hint=RECORD)  # fmt: skip
        expect.equal(_listed(output), _listed(one["returned"]), "the equation makes another variable than is returned",
                     given=op, hint=RECORD)  # fmt: skip


def _listed(value: Any) -> Any:
    return [_listed(one) for one in value] if isinstance(value, list | tuple) else value


@points(1)
def results_have_their_shapes(submission: Submission) -> None:
    """`record` knows the shape of what an operation makes; a number has the shape ()."""
    found, steps = _recorded(submission, numbers=True)
    for one, (op, _, shape) in zip(found, steps, strict=True):
        hint = "SHAPES[op] takes the shapes of all operands: one.shape of a variable, () of a number"
        expect.equal(_listed(one["returned"])[1:], shape, "the variable has another shape", given=op, hint=hint)


@points(1)
def every_result_is_new(submission: Submission) -> None:
    """`record` makes a variable for each operation that nothing else has."""
    found, _ = _recorded(submission)
    numbers = [_listed(one["returned"])[0] for one in found]
    read = [operand[0] for operand in _listed(found[0]["operands"]) if isinstance(operand, list)]
    distinct = len({*numbers, *read}) == len(numbers) + len(read)
    expect.true(distinct, "several results are the same variable", expected="another number each",
                got=f"numbers {numbers} for {len(numbers)} results", hint="fresh(shape) makes a new one")  # fmt: skip


# -- programs


class Writer:
    """Writes a program in plain data; numbers of variables come in no order."""

    def __init__(self, submission: Submission) -> None:
        self.numbers = iter(int(number) for number in submission.rng.permutation(1000))
        self.inputs: list[Plain] = []
        self.equations: list[Plain] = []

    def input(self, *shape: int) -> Plain:
        """Another input."""
        self.inputs.append([next(self.numbers), *shape])
        return self.inputs[-1]

    def equation(self, op: str, operands: list[Any], *shape: int) -> Plain:
        """Another equation; its result."""
        output = [next(self.numbers), *shape]
        self.equations.append([op, operands, output])
        return output

    def program(self, *outputs: Any) -> Plain:
        """The program."""
        return [self.inputs, self.equations, list(outputs)]


def _evaluated(submission: Submission, program: Plain, arguments: list[np.ndarray], want: list[np.ndarray],
               given: str, hint: str) -> None:  # fmt: skip
    with expect.case(given, hint):
        told = submission.call(PROBES + "evaluated", submission.value("evaluate"), program, arguments)
    many = isinstance(told, list | tuple)
    expect.true(many and len(told) == len(want), "`evaluate` returns no tuple of the outputs",
                expected=f"{len(want)} arrays in a tuple", got=told, given=given,
                hint="tuple(... for one in program.outputs)")  # fmt: skip
    for number, (got, right) in enumerate(zip(told, want, strict=True)):
        expect.close(got, np.asarray(right), f"output {number}", rtol=1e-4, atol=1e-5, given=given, hint=hint)


@points(1)
def programs_are_run(submission: Submission) -> None:
    """`evaluate` carries out equation by equation, on what came before."""
    w = Writer(submission)
    a, b, c = w.input(4, 3), w.input(3, 5), w.input(5)
    d = w.equation("matmul", [a, b], 4, 5)
    e = w.equation("sub", [d, c], 4, 5)
    f = w.equation("relu", [e], 4, 5)
    x, y, z = submission.normal(4, 3), submission.normal(3, 5), submission.normal(5)
    want = np.maximum(x @ y - z, 0)
    hint = "a dictionary from variables to arrays: inputs first, then NUMPY[op] of each equation's operands"
    _evaluated(submission, w.program(f), [x, y, z], [want], "relu(a @ b - c)", hint)


@points(1)
def numbers_stand_for_themselves(submission: Submission) -> None:
    """`evaluate` takes numbers among the operands as they are, and returns all outputs in order."""
    w = Writer(submission)
    a, b = w.input(3, 2), w.input(3, 2)
    c = w.equation("sub", [1.5, a], 3, 2)
    d = w.equation("mul", [b, -2.0], 3, 2)
    x, y = submission.normal(3, 2), submission.normal(3, 2)
    hint = "operands that are no Variable are numbers: values[one] if isinstance(one, Variable) else one"
    _evaluated(submission, w.program(d, c), [x, y], [y * -2, 1.5 - x], "c = 1.5 - a, d = b * -2.0; d, c", hint)


@points(1)
def values_are_used_again(submission: Submission) -> None:
    """`evaluate` keeps values that are read more than once, and inputs that are outputs."""
    w = Writer(submission)
    a, b = w.input(4), w.input(4)
    c = w.equation("sub", [b, a], 4)
    d = w.equation("mul", [c, c], 4)
    e = w.equation("add", [d, a], 4)
    f = w.equation("sub", [e, c], 4)
    x, y = submission.normal(4), submission.normal(4)
    hint = "a value stays until the end: any equation after it may read it, and so may the outputs"
    _evaluated(submission, w.program(f, a), [x, y], [(y - x) ** 2 + x - (y - x), x],
               "c = b - a, d = c * c, e = d + a, f = e - c; f, a", hint)  # fmt: skip


def _with_dead_ends(submission: Submission) -> tuple[Plain, list[str]]:
    """A program, and the operations that its outputs need, in order."""
    w = Writer(submission)
    a, b = w.input(4), w.input(4)
    unused = w.equation("exp", [a], 4)
    c = w.equation("mul", [a, b], 4)
    w.equation("log", [unused], 4)
    d = w.equation("neg", [c], 4)
    w.equation("maximum", [d, unused], 4)
    e = w.equation("sub", [d, c], 4)
    f = w.equation("div", [c, 2.0], 4)
    w.equation("pow", [e, 2.0], 4)
    return w.program(e, f), ["mul", "neg", "sub", "div"]


def _live(submission: Submission) -> tuple[Plain, Plain, list[str]]:
    """A program, what `live` makes of it, and the operations that it needs."""
    program, needed = _with_dead_ends(submission)
    with expect.case("a program of eight equations, four of which lead to the outputs"):
        told = submission.call(PROBES + "kept", submission.value("live"), program)
    found = _listed(told) if isinstance(told, list | tuple) else []
    whole = len(found) == 3 and all(isinstance(part, list) for part in found)
    expect.true(whole, "`live` returns no Program", expected="Program", got=told)
    return program, found, needed


@points(1)
def what_nobody_needs_is_gone(submission: Submission) -> None:
    """`live` leaves out equations that lead to no output."""
    program, found, needed = _live(submission)
    expect.true(bool(found[1]), "no equation is left", hint="what an output needs stays")
    dead = [one[0] for one in found[1] if one in program[1] and one[0] not in needed]
    hint = "go backwards: an equation is needed if its output is; then its operands are needed, too"
    expect.true(not dead, "equations are left that lead nowhere", expected=", ".join(needed), got=", ".join(dead),
                hint=hint)  # fmt: skip


@points(1)
def what_outputs_need_stays(submission: Submission) -> None:
    """`live` keeps all that an output needs, in order, with inputs and outputs as they are."""
    program, found, needed = _live(submission)
    left = [one for one in found[1] if one[0] in needed]
    right = [one for one in program[1] if one[0] in needed]
    hint = "outputs are needed to begin with; what was found backwards is put in order again"
    expect.true(left == right, "needed equations are gone, or not in order", expected=", ".join(needed),
                got=", ".join(str(one[0]) for one in left), hint=hint)  # fmt: skip
    expect.equal(found[0], program[0], "the program has other inputs", hint="they are its signature")
    expect.equal(found[2], program[2], "the program has other outputs")


TASKS = (
    Task(
        "P5.5",
        "A tracer in a page",
        checks=(
            operations_are_written_down,
            results_have_their_shapes,
            every_result_is_new,
            programs_are_run,
            numbers_stand_for_themselves,
            values_are_used_again,
            what_nobody_needs_is_gone,
            what_outputs_need_stays,
        ),
        forbidden=(
            "mlhood.jaxlab.tracing.tracer.record",
            "mlhood.jaxlab.tracing.tracer.evaluate",
            "mlhood.jaxlab.tracing.tracer.live",
        ),
    ),
)
