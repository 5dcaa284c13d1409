"""Checks of P5.5: the three functions of a tracer, on programs in plain data.

A variable is [number, *shape], a number is a constant, an equation is [operation, operands, variable].
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from string import ascii_lowercase
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.compared import Arguments, Cases, compared
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Check, Task, points
from mlhood.grading.projects.p5.libraries import TAPE
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
# what `evaluate` returns: a tuple of the outputs, a dictionary of the values, or a list of the results of all equations
EVALUATED = Parameter("evaluated", ("outputs", "values", "results"))
LIVE_OPTION = Parameter("live_option", ("", "used", "outputs", "count"))  # one more argument of `live`
Plain = list[Any]
Step = tuple[str, list[Any], list[int]]
RECORD = "one new variable of the right shape, one equation that defines it, and the variable is returned"


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
    """Return each step with what the student's `record` returned and appended."""
    shapes, steps = _draw_steps(submission, numbers)
    operations = [[op, list(operands)] for op, operands, _ in steps]
    answer = submission.probe(PROBES + "recorded", "record", shapes, operations)
    reports = [
        dict(expect.mapping(report, ("returned", "operands", "equations"), "what `record` does"))
        for report in (answer if isinstance(answer, list | tuple) else [])
    ]
    expect.true(len(reports) == len(steps), "`record` did not record all operations", got=answer)
    before: list[Any] = []
    for report, (op, _, _) in zip(reports, steps, strict=True):
        written = _listed(report["equations"]) if isinstance(report["equations"], list | tuple) else []
        what = "`record` changes equations that are recorded already"
        expect.true(written[: len(before)] == before, what, expected="one more at the end", got=op, hint=RECORD)
        report["appended"], before = written[len(before) :], written
        returned = report["returned"]
        variable, what = isinstance(returned, list | tuple) and bool(returned), "`record` does not return a variable"
        expect.true(variable, what, expected="Variable", got=returned, given=op, hint=RECORD)
    return list(zip(steps, reports, strict=True))


@points(1)
def operations_are_written_down(submission: Submission) -> None:
    """`record` appends one equation, with its operands and the variable that it returns."""
    records = _record(submission)
    if submission.passed(results_have_their_shapes):  # what numbers do to a shape is asked there
        records += _record(submission, numbers=True)
    for (op, _, _), report in records:
        appended = report["appended"]
        with expect.case(op, RECORD):
            what = "the number of equations that `record` appends is not one"
            expect.true(len(appended) == 1, what, expected="one", got=len(appended))
            name, operands, output = appended[0]
            expect.equal(name, op, "the equation of `record` has the wrong operation")
            expect.equal(
                _listed(operands), _listed(report["operands"]), "the equation of `record` has the wrong operands"
            )
            expect.equal(
                _listed(output), _listed(report["returned"]), "the variable that `record` returns is not its equation's"
            )


def _listed(value: Any) -> Any:
    """Convert nested tuples to lists."""
    return [_listed(item) for item in value] if isinstance(value, list | tuple) else value


@points(0.5)
def results_have_their_shapes(submission: Submission) -> None:
    """`record` computes the shape of the result; a number has the shape ()."""
    hint = "SHAPES[op] takes the shapes of all operands: operand.shape for a variable, () for a number"
    for (op, _, shape), report in _record(submission, numbers=True):
        what = "the variable of `record` has the wrong shape"
        expect.equal(_listed(report["returned"])[1:], shape, what, given=op, hint=hint)


@points(0.5)
def every_result_is_new(submission: Submission) -> None:
    """`record` creates a new variable for each operation."""
    reports = [report for _, report in _record(submission)]
    numbers = [_listed(report["returned"])[0] for report in reports]
    inputs = [operand[0] for operand in _listed(reports[0]["operands"]) if isinstance(operand, list)]
    distinct = len({*numbers, *inputs}) == len(numbers) + len(inputs)
    what, got = "several results of `record` share a variable", f"numbers {numbers} for {len(numbers)} results"
    hint = "fresh(shape) creates a new variable"
    expect.true(distinct, what, expected="a different number for each", got=got, hint=hint)


# -- programs


class ProgramBuilder:
    """Builds a program in plain data, with numbers of variables in random order."""

    def __init__(self, submission: Submission) -> None:
        self.numbers = iter(int(number) for number in submission.rng.permutation(1000))
        self.inputs: list[Plain] = []
        self.equations: list[Plain] = []

    def input(self, *shape: int) -> Plain:
        """Add an input."""
        self.inputs.append([next(self.numbers), *shape])
        return self.inputs[-1]

    def equation(self, op: str, operands: list[Any], *shape: int) -> Plain:
        """Add an equation; return its result."""
        output = [next(self.numbers), *shape]
        self.equations.append([op, operands, output])
        return output

    def program(self, *outputs: Any) -> Plain:
        """Return the program."""
        return [self.inputs, self.equations, list(outputs)]


def _shown(arguments: Arguments, keywords: Mapping[str, Any]) -> str:
    """Return a program in words, with letters for its variables: `c = sub a, 2; d = mul c, b; outputs d, 2.5`."""
    inputs, equations, outputs = arguments[0]
    defined = [*inputs, *(output for _, _, output in equations)]
    names = {variable[0]: letter for variable, letter in zip(defined, ascii_lowercase, strict=False)}

    def listed(operands: list[Any]) -> str:
        return ", ".join(names[x[0]] if isinstance(x, list) else f"{x}" for x in operands)

    lines = [f"{listed([output])} = {op} {listed(operands)}" for op, operands, output in equations]
    return "; ".join([*lines, f"outputs {listed(outputs) or 'none'}"])


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
    w = ProgramBuilder(submission)
    a, b, c = w.input(4, 3), w.input(3, 5), w.input(5)
    d = w.equation("matmul", [a, b], 4, 5)
    e = w.equation("sub", [d, c], 4, 5)
    f = w.equation("relu", [e], 4, 5)
    for _ in range(2):  # on other arrays, the same program gives other results
        yield w.program(f), submission.normal(4, 3), submission.normal(3, 5), submission.normal(5)
    w = ProgramBuilder(submission)
    a, b, c = w.input(4, 3), w.input(3, 4), w.input(4, 3)
    d = w.equation("transpose", [b], 4, 3)
    e = w.equation("maximum", [a, d], 4, 3)
    f = w.equation("neg", [e], 4, 3)
    g = w.equation("exp", [f], 4, 3)
    h = w.equation("div", [c, g], 4, 3)
    i = w.equation("sum", [h])
    yield w.program(i), submission.normal(4, 3), submission.normal(3, 4), submission.normal(4, 3)


@evaluation(0.5, "an operand that is not a Variable is a number, and stands for itself")
def numbers_stand_for_themselves(submission: Submission) -> Iterator[Arguments]:
    """`evaluate` uses numbers among the operands directly, and returns all {{ evaluated }}{{ "" if evaluated == "values" else " in order" }}."""  # noqa: E501
    w = ProgramBuilder(submission)
    a, b = w.input(3, 2), w.input(3, 2)
    c = w.equation("sub", [1.5, a], 3, 2)
    d = w.equation("mul", [b, -2], 3, 2)
    x, y = submission.normal(3, 2), submission.normal(3, 2)
    yield w.program(d, c), x, y
    yield w.program(d, 2.5, d), x, y
    yield w.program(), x, y


@evaluation(0.5, "keep every value to the end: any later equation may read it, and so may the outputs")
def values_are_used_again(submission: Submission) -> Iterator[Arguments]:
    """`evaluate` keeps values that are read more than once{{ ", and inputs that are outputs" if evaluated == "outputs" else "" }}."""  # noqa: E501
    w = ProgramBuilder(submission)
    a, b = w.input(4), w.input(4)
    c = w.equation("sub", [b, a], 4)
    d = w.equation("mul", [c, c], 4)
    e = w.equation("add", [d, a], 4)
    f = w.equation("sub", [e, c], 4)
    yield w.program(f, a), submission.normal(4), submission.normal(4)


def _program_with_dead_code(submission: Submission) -> Plain:
    """Build a program of which only some equations lead to the outputs."""
    w = ProgramBuilder(submission)
    a, b = w.input(4), w.input(4)
    unused = w.equation("exp", [a], 4)
    c = w.equation("mul", [a, b], 4)
    w.equation("log", [unused], 4)
    d = w.equation("neg", [c], 4)
    w.equation("maximum", [d, unused], 4)
    e = w.equation("sub", [d, c], 4)
    f = w.equation("div", [c, 2.0], 4)
    w.equation("pow", [e, 2.0], 4)
    return w.program(e, f)


def _drawn_program(submission: Submission) -> Plain:
    """Draw a program of twelve equations on earlier values."""
    w, rng = ProgramBuilder(submission), submission.rng
    values = [w.input(3) for _ in range(3)]
    for _ in range(12):
        left, right = (values[int(rng.integers(len(values)))] for _ in range(2))
        op = str(rng.choice(["add", "mul", "sub", "maximum"]))
        values.append(w.equation(op, [left, right if rng.random() < 0.8 else 0.5], 3))
    return w.program(*(values[int(index)] for index in rng.choice(np.arange(3, 9), 2, replace=False)))


def _chain(submission: Submission) -> Plain:
    """Build a chain of ten equations beside one that nothing needs.

    Its result is an output twice; an input, a number and the result of one more equation are outputs, too.
    """
    w = ProgramBuilder(submission)
    a, b = w.input(2), w.input(2)
    value = a
    for op in ("neg", "exp", "add", "sub", "mul", "log", "maximum", "neg", "div", "add"):
        value = w.equation(op, [value] if op in ("neg", "exp", "log") else [value, b], 2)
    w.equation("mul", [value, value], 2)
    return w.program(value, a, 2.5, w.equation("pow", [b, 2.0], 2), value)


def _live(submission: Submission, *more: Plain) -> Iterator[tuple[list[Plain], Plain, Plain]]:
    """Yield the equations of each program, drawn or given, what `live` returns of it, and what it should return."""
    for i, program in enumerate((_program_with_dead_code(submission), *map(_drawn_program, [submission] * 4), *more)):
        # the option may be left out, and there is nothing to choose where there are no outputs
        has_option = i and program[2] and submission.parameters.live_option
        options = _chosen(submission, program, chosen=i != 1) if has_option else {}
        probe = PROBES + "live_result"
        want = submission.solution("live", program, options, probe=probe)["program"]
        argument = "".join(f", with {name}={value}" for name, value in options.items())
        with expect.case(f"a program of {len(program[1])} equations, {len(want[1])} of which are needed{argument}"):
            report = submission.probe(probe, "live", program, options, keys=("program", "changed"))
            result = _listed(report["program"]) if isinstance(report["program"], list | tuple) else []
            valid = len(result) == 3 and all(isinstance(part, list) for part in result)
            what = "`live` does not return a Program"
            expect.true(valid, what, expected="Program", got=report["program"])
            expect.true(report["changed"] is False, "`live` changes the program that is passed to it")
            yield program[1], result, _listed(want)


def _chosen(submission: Submission, program: Plain, *, chosen: bool) -> dict[str, Any]:
    """Choose one of the outputs, or none: return the argument that `live` has in this variant, by its name."""
    option = submission.parameters.live_option
    index = 0 if option == "count" else int(submission.rng.integers(len(program[2])))
    used = [chosen and index == i for i in range(len(program[2]))]
    left = [output for output, use in zip(program[2], used, strict=True) if use]
    return {option: {"used": used, "outputs": left, "count": len(left)}[option]}


def _named(equations: Plain) -> str:
    return ", ".join(str(equation[0]) for equation in equations) or "none"


@points(1, solved=True)
def what_nobody_needs_is_gone(submission: Submission) -> None:
    """`live` removes equations that no output needs."""
    without_outputs = [*_chain(submission)[:2], []]
    for equations, (_, remaining, _), (_, needed, _) in _live(submission, without_outputs):
        expect.true(bool(remaining) or not needed, "no equation remains after `live`", hint="keep what an output needs")
        dead = [equation for equation in remaining if equation in equations and equation not in needed]
        what, hint = "dead equations remain after `live`", "who needs an equation: which others, and who needs those?"
        expect.true(not dead, what, expected=_named(needed), got=_named(dead), hint=hint)


@points(1, solved=True)
def what_outputs_need_stays(submission: Submission) -> None:
    """`live` keeps everything that an output needs, in order, and the program's inputs and outputs."""
    removed = 0
    for equations, result, (inputs, needed, outputs) in _live(submission, _chain(submission)):
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
    varies=(EVALUATED, LIVE_OPTION),
    minutes=35,
    libraries=TAPE,
)
