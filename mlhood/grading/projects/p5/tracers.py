"""Checks of P5.5: the three functions of a tracer, on programs in plain data.

A variable is [number, *shape], a number is a constant, an equation is [operation, operands, variable].
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Cases, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task, points
from mlhood.grading.projects.p5.libraries import TAPE
from mlhood.grading.projects.p5.probes_numpy import program_of
from mlhood.grading.variants.parameter import Parameter
from mlhood.jaxlab.tracing.tracer import Variable, exp, log, maximum, relu, sum, trace, transpose

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
# what `evaluate` returns: a tuple of the outputs, a dictionary of the values, or a list of the results of all equations
EVALUATED = Parameter("evaluated", ("outputs", "values", "results"))
Plain = list[Any]
Step = tuple[str, list[Any], list[int]]


def _draw_steps(submission: Submission, numbers: bool) -> tuple[list[list[int]], list[Step]]:
    """Draw shapes of inputs, and steps: operation, operands by index (or a number in a list), shape of the result."""
    m, k, n = (int(size) for size in submission.rng.permutation([2, 3, 4, 5, 6])[:3])
    shapes = [[m, k], [k, n], [n]]
    return shapes, [
        ("matmul", [0, 1], [m, n]),
        ("add", [3, 2], [m, n]),
        ("mul", [[2.5] if numbers else 3, 4], [m, n]),
        ("sub", [5, [2] if numbers else 4], [m, n]),
        ("transpose", [6], [n, m]),
        ("sum", [7], []),
        ("mul", [8, [3.5] if numbers else 8], []),
    ]


def _record(submission: Submission, *, numbers: bool = False) -> list[tuple[Step, dict[str, Any]]]:
    """Return each step with what the student's `record` returned, its operands, and all equations after it."""
    shapes, steps = _draw_steps(submission, numbers)
    operations = [[op, list(operands)] for op, operands, _ in steps]
    return list(zip(steps, submission.probe(PROBES + "recorded", "record", shapes, operations), strict=True))


@points(1)
def operations_are_written_down(submission: Submission) -> None:
    """`record` appends one equation, with its operands and the variable that it returns."""
    hint = "one new variable of the right shape, one equation that defines it, and the variable is returned"
    what = "`record` does not append one equation, with these operands and the variable that it returns"
    # what numbers do to a shape is asked there
    for numbers in (False, True) if submission.passed(results_have_their_shapes) else (False,):
        before: list[Any] = []
        for (op, _, _), report in _record(submission, numbers=numbers):
            before.append([op, report["operands"], report["returned"]])
            expect.equal(report["equations"], before, what, given=op, hint=hint)


@points(0.5)
def results_have_their_shapes(submission: Submission) -> None:
    """`record` computes the shape of the result; a number has the shape ()."""
    hint = "SHAPES[op] takes the shapes of all operands: operand.shape for a variable, () for a number"
    for (op, _, shape), report in _record(submission, numbers=True):
        what = "the variable of `record` has the wrong shape"
        expect.equal(report["returned"][1:], shape, what, given=op, hint=hint)


@points(0.5)
def every_result_is_new(submission: Submission) -> None:
    """`record` creates a new variable for each operation."""
    reports = [report for _, report in _record(submission)]
    numbers = [report["returned"][0] for report in reports] + [operand[0] for operand in reports[0]["operands"]]
    what, hint = "several results of `record` share a variable", "fresh(shape) creates a new variable"
    expect.equal(len(set(numbers)), len(numbers), what, hint=hint)


# -- programs


def _traced(submission: Submission, function: Callable[..., Any], *shapes: tuple[int, ...]) -> Plain:
    """Return the program that a function is traced to in plain data, its variables with drawn numbers."""
    program = trace(function, *shapes)
    defined = [*program.inputs, *(equation.output for equation in program.equations)]
    numbers = dict(zip(defined, submission.rng.permutation(1000).tolist(), strict=False))

    def plain(operand: Any) -> Any:
        return [numbers[operand], *operand.shape] if isinstance(operand, Variable) else operand

    equations = [[each.op, [*map(plain, each.inputs)], plain(each.output)] for each in program.equations]
    return [[*map(plain, program.inputs)], equations, [*map(plain, program.outputs)]]


def _shown(arguments: Arguments, keywords: Mapping[str, Any]) -> str:
    return " ".join(str(program_of(arguments[0])).split())


def evaluation(number: float, hint: str) -> Callable[[Cases], Check]:
    """Return a decorator for a check of `evaluate`: each case is a program in plain data, and its arguments."""
    options: dict[str, Any] = {"probe": PROBES + "evaluated", "given": _shown, "typed": True}
    return compared(number, "evaluate", hint=hint, key="outputs", **options)


@evaluation(
    1,
    "keep the value of every variable: inputs first, then that of each equation in order; NUMPY has a function for "
    "every operation",
)
def programs_are_run(submission: Submission) -> Iterator[Arguments]:
    """`evaluate` executes the equations in order, each on the results before it."""
    program = _traced(submission, lambda a, b, c: relu(a @ b - c), (4, 3), (3, 5), (5,))
    for _ in range(2):  # on other arrays, the same program gives other results
        yield program, submission.normal(4, 3), submission.normal(3, 5), submission.normal(5)
    shapes = (4, 3), (3, 4), (4, 3)
    program = _traced(submission, lambda a, b, c: sum(c / exp(-maximum(a, transpose(b)))), *shapes)
    yield program, *(submission.normal(*shape) for shape in shapes)


@evaluation(0.5, "an operand that is not a Variable is a number, and stands for itself")
def numbers_stand_for_themselves(submission: Submission) -> Iterator[Arguments]:
    """`evaluate` uses numbers among the operands directly, and returns all {{ evaluated }}{{ "" if evaluated == "values" else " in order" }}."""  # noqa: E501
    x, y = submission.normal(3, 2), submission.normal(3, 2)
    for outputs in (lambda c, d: (d, c), lambda c, d: (d, 2.5, d), lambda c, d: ()):
        yield _traced(submission, lambda a, b, outputs=outputs: outputs(1.5 - a, b * -2), (3, 2), (3, 2)), x, y


@evaluation(0.5, "keep every value to the end: any later equation may read it, and so may the outputs")
def values_are_used_again(submission: Submission) -> Iterator[Arguments]:
    """`evaluate` keeps values that are read more than once{{ ", and inputs that are outputs" if evaluated == "outputs" else "" }}."""  # noqa: E501

    def function(a: Any, b: Any) -> Any:
        c = b - a
        return c * c + a - c, a

    yield _traced(submission, function, (4,), (4,)), submission.normal(4), submission.normal(4)


def _with_dead_code(a: Any, b: Any) -> Any:
    unused, c = exp(a), a * b
    log(unused)
    d = -c
    maximum(d, unused)
    e = d - c
    e**2.0  # pyright: ignore[reportUnusedExpression]
    return e, c / 2.0


def _draw_program(submission: Submission) -> Plain:
    """Draw a program of twelve equations on earlier values."""
    rng, operations = submission.rng, (operator.add, operator.mul, operator.sub, maximum)

    def function(*inputs: Any) -> Any:
        values = [*inputs]
        for _ in range(12):
            left, right = (values[int(rng.integers(len(values)))] for _ in range(2))
            values.append(operations[int(rng.integers(4))](left, right if rng.random() < 0.8 else 0.5))
        first, second = rng.permutation(6)[:2]
        return values[3 + first], values[3 + second]

    return _traced(submission, function, (3,), (3,), (3,))


def _chain(a: Any, b: Any) -> Any:
    """Compute a chain beside one value that nothing needs; an output twice, an input, a number and another value."""
    value = -maximum(log((exp(-a) + b - b) * b), b) / b + b
    value * value  # pyright: ignore[reportUnusedExpression]
    return value, a, 2.5, b**2.0, value


def _live(submission: Submission, *more: Plain) -> Iterator[tuple[list[Plain], Plain, Plain]]:
    """Yield the equations of each program, drawn or given, what `live` returns of it, and what it should return."""
    programs = _traced(submission, _with_dead_code, (4,), (4,)), *map(_draw_program, [submission] * 4), *more
    for program in programs:
        want = submission.solution("live", program, probe=PROBES + "live_result")["program"]
        with expect.case(f"a program of {len(program[1])} equations, {len(want[1])} of which are needed"):
            report = submission.probe(PROBES + "live_result", "live", program, keys=("program", "broken"))
            yield program[1], report["program"], want


def _named(equations: Plain) -> str:
    return ", ".join(str(equation[0]) for equation in equations) or "none"


@points(1, solved=True)
def what_nobody_needs_is_gone(submission: Submission) -> None:
    """`live` removes equations that no output needs."""
    without_outputs = [*_traced(submission, _chain, (2,), (2,))[:2], []]
    for equations, (_, remaining, _), (_, needed, _) in _live(submission, without_outputs):
        expect.true(bool(remaining) or not needed, "no equation remains after `live`", hint="keep what an output needs")
        dead = [equation for equation in remaining if equation in equations and equation not in needed]
        what, hint = "dead equations remain after `live`", "who needs an equation: which others, and who needs those?"
        expect.true(not dead, what, expected=_named(needed), got=_named(dead), hint=hint)


@points(1, solved=True)
def what_outputs_need_stays(submission: Submission) -> None:
    """`live` keeps everything that an output needs, in order, and the program's inputs and outputs."""
    removed = 0
    for equations, result, (inputs, needed, outputs) in _live(submission, _traced(submission, _chain, (2,), (2,))):
        removed += len(equations) - len(result[1])
        got = [equation for equation in result[1] if equation in needed]
        what = "needed equations are missing or out of order after `live`"
        hint = "first the outputs are needed; each equation that is needed makes its operands needed; the order stays"
        expect.true(got == needed, what, expected=_named(needed), got=_named(got), hint=hint)
        what, hint = "the program of `live` has the wrong inputs", "the inputs are its signature"
        expect.equal(result[0], inputs, what, hint=hint)
        expect.equal(result[2], outputs, "the program of `live` has the wrong outputs")
    expect.true(removed > 0, "`live` keeps every equation", hint="which equations does no output need?")


P5_5 = Task(
    "P5.5",
    "A tracer in one page",
    varies=(EVALUATED,),
    minutes=35,
    libraries=TAPE,
)
