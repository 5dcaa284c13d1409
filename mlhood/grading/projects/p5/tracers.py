"""Checks of P5.5: the three functions of a tracer, on programs in plain data.

A variable is [number, *shape], a number is a constant, an equation is [operation, operands, variable].
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission, check_rules
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p5.libraries import TAPE
from mlhood.grading.variants.parameter import Parameter

PROBES = "mlhood.grading.projects.p5.probes_numpy:"
# what `evaluate` returns: a tuple of the outputs, a dictionary of the values, or a list of the results of all equations
EVALUATED = Parameter("evaluated", ("outputs", "values", "results"))
LIVE_OPTION = Parameter("live_option", ("", "used", "outputs", "count"))  # one more argument of `live`
NUMPY = {
    "add": np.add,
    "sub": np.subtract,
    "mul": np.multiply,
    "div": np.divide,
    "maximum": np.maximum,
    "neg": np.negative,
    "exp": np.exp,
    "matmul": np.matmul,
    "relu": lambda x: np.maximum(x, 0),
    "sum": np.sum,
    "transpose": np.transpose,
}
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
    answer = submission.call(PROBES + "recorded", submission.value("record"), shapes, operations)
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
    for (op, _, _), report in _record(submission):
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


@points(1)
def results_have_their_shapes(submission: Submission) -> None:
    """`record` computes the shape of the result; a number has the shape ()."""
    hint = "SHAPES[op] takes the shapes of all operands: operand.shape for a variable, () for a number"
    for (op, _, shape), report in _record(submission, numbers=True):
        what = "the variable of `record` has the wrong shape"
        expect.equal(_listed(report["returned"])[1:], shape, what, given=op, hint=hint)


@points(1)
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


class Builder:
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


def _check_evaluation(
    submission: Submission, program: Plain, arguments: list[np.ndarray], want: list[np.ndarray], given: str, hint: str
) -> None:
    with expect.case(given, hint):
        answer = submission.call(PROBES + "evaluated", submission.value("evaluate"), program, arguments)
        report = expect.mapping(answer, ("outputs", "copied", "broken"), "what `evaluate` does")
        check_rules(report["broken"], "`evaluate`")
        got = report["outputs"]
        if submission.parameters.evaluated != "outputs":
            _check_all_values(submission.parameters.evaluated, got, program, arguments)
            return
        outputs = got if isinstance(got, tuple) else ()
        what, expected = "`evaluate` does not return a tuple of the outputs", f"{len(want)} arrays in a tuple"
        returns = "return tuple(... for output in program.outputs)"
        expect.true(len(outputs) == len(want), what, expected=expected, got=got, hint=returns)
        for index, (got_output, output) in enumerate(zip(outputs, want, strict=True)):
            what = f"output {index} of `evaluate`"
            dtype = np.float32 if np.shape(output) else None
            expect.close(got_output, np.asarray(output), what, rtol=1e-4, atol=1e-5, dtype=dtype)
        what, expected = "an output of `evaluate` that is an input is another array", "the argument itself, not a copy"
        expect.true(report["copied"] == [], what, expected=expected, got=f"output {report['copied']}")


def _check_all_values(form: str, got: object, program: Plain, arguments: list[np.ndarray]) -> None:
    """Check a dictionary of all values, which the probe makes a list of pairs; or a list of all results."""
    inputs, equations, _ = program
    values = {variable[0]: argument for variable, argument in zip(inputs, arguments, strict=True)}
    for op, operands, output in equations:
        values[output[0]] = NUMPY[op](*(values[x[0]] if isinstance(x, list) else x for x in operands))
    if form == "results":
        want = [values[output[0]] for _, _, output in equations]
        what, expected = "`evaluate` does not return a list of the results", f"{len(want)} arrays in a list"
        results = got if isinstance(got, list) else []
        expect.true(len(results) == len(want), what, expected=expected, got=got)
        named = {f"result {index}": pair for index, pair in enumerate(zip(results, want, strict=True))}
    else:
        pairs = dict(got["values"]) if isinstance(got, dict) and "values" in got else {}
        what, expected = "`evaluate` does not return the values", f"a dictionary from {len(values)} variables to arrays"
        expect.true(sorted(pairs) == sorted(values), what, expected=expected, got=f"{len(pairs)} of them")
        named = {f"the value of variable {number}": (pairs[number], value) for number, value in values.items()}
    for name, (result, value) in named.items():
        dtype = np.float32 if np.shape(value) else None
        expect.close(result, np.asarray(value), f"{name} by `evaluate`", rtol=1e-4, atol=1e-5, dtype=dtype)


@points(1)
def programs_are_run(submission: Submission) -> None:
    """`evaluate` executes the equations in order, each on the results before it."""
    w = Builder(submission)
    a, b, c = w.input(4, 3), w.input(3, 5), w.input(5)
    d = w.equation("matmul", [a, b], 4, 5)
    e = w.equation("sub", [d, c], 4, 5)
    f = w.equation("relu", [e], 4, 5)
    hint = "keep the value of every variable: inputs first, then that of each equation in order"
    given = "relu(a @ b - c)"
    for _ in range(2):  # on other arrays, the same program gives other results
        x, y, z = submission.normal(4, 3), submission.normal(3, 5), submission.normal(5)
        _check_evaluation(submission, w.program(f), [x, y, z], [np.maximum(x @ y - z, 0)], given, hint)
        given = "relu(a @ b - c), for the second time"
    w = Builder(submission)
    a, b, c = w.input(4, 3), w.input(3, 4), w.input(4, 3)
    d = w.equation("transpose", [b], 4, 3)
    e = w.equation("maximum", [a, d], 4, 3)
    f = w.equation("neg", [e], 4, 3)
    g = w.equation("exp", [f], 4, 3)
    h = w.equation("div", [c, g], 4, 3)
    i = w.equation("sum", [h])
    x, y, z = submission.normal(4, 3), submission.normal(3, 4), submission.normal(4, 3)
    want = np.asarray((z * np.exp(np.maximum(x, y.T))).sum())
    hint = "NUMPY has a function for every operation"
    _check_evaluation(submission, w.program(i), [x, y, z], [want], "sum(c / exp(-maximum(a, transpose(b))))", hint)


@points(1)
def numbers_stand_for_themselves(submission: Submission) -> None:
    """`evaluate` uses numbers among the operands directly, and returns all {{ evaluated }}{{ "" if evaluated == "values" else " in order" }}."""  # noqa: E501
    w = Builder(submission)
    a, b = w.input(3, 2), w.input(3, 2)
    c = w.equation("sub", [1.5, a], 3, 2)
    d = w.equation("mul", [b, -2], 3, 2)
    x, y = submission.normal(3, 2), submission.normal(3, 2)
    given = "c = 1.5 - a, d = b * -2; d, c"
    hint = "an operand that is not a Variable is a number, and stands for itself"
    _check_evaluation(submission, w.program(d, c), [x, y], [y * -2, 1.5 - x], given, hint)
    given = "c = 1.5 - a, d = b * -2; d, 2.5"
    _check_evaluation(submission, w.program(d, 2.5), [x, y], [y * -2, np.asarray(2.5)], given, hint)
    _check_evaluation(submission, w.program(), [x, y], [], "c = 1.5 - a, d = b * -2, without outputs", hint)


@points(1)
def values_are_used_again(submission: Submission) -> None:
    """`evaluate` keeps values that are read more than once{{ ", and inputs that are outputs" if evaluated == "outputs" else "" }}."""  # noqa: E501
    w = Builder(submission)
    a, b = w.input(4), w.input(4)
    c = w.equation("sub", [b, a], 4)
    d = w.equation("mul", [c, c], 4)
    e = w.equation("add", [d, a], 4)
    f = w.equation("sub", [e, c], 4)
    x, y = submission.normal(4), submission.normal(4)
    given = "c = b - a, d = c * c, e = d + a, f = e - c; f, a"
    hint = "keep every value to the end: any later equation may read it, and so may the outputs"
    _check_evaluation(submission, w.program(f, a), [x, y], [(y - x) ** 2 + x - (y - x), x], given, hint)


def _program_with_dead_code(submission: Submission) -> tuple[Plain, Plain]:
    """Build a program; return it with the equations that its outputs need, in order."""
    w = Builder(submission)
    a, b = w.input(4), w.input(4)
    unused = w.equation("exp", [a], 4)
    c = w.equation("mul", [a, b], 4)
    w.equation("log", [unused], 4)
    d = w.equation("neg", [c], 4)
    w.equation("maximum", [d, unused], 4)
    e = w.equation("sub", [d, c], 4)
    f = w.equation("div", [c, 2.0], 4)
    w.equation("pow", [e, 2.0], 4)
    needed = ("mul", "neg", "sub", "div")
    return w.program(e, f), [equation for equation in w.equations if equation[0] in needed]


def _drawn_program(submission: Submission) -> tuple[Plain, Plain]:
    """Draw a program of twelve equations on earlier values, and with them the equations that its outputs need."""
    w, rng = Builder(submission), submission.rng
    values = [w.input(3) for _ in range(3)]
    for _ in range(12):
        left, right = (values[int(rng.integers(len(values)))] for _ in range(2))
        op = str(rng.choice(["add", "mul", "sub", "maximum"]))
        values.append(w.equation(op, [left, right if rng.random() < 0.8 else 0.5], 3))
    outputs = [values[int(index)] for index in rng.choice(np.arange(3, 9), 2, replace=False)]
    return w.program(*outputs), _needed(w.equations, outputs)


def _chain(submission: Submission) -> tuple[Plain, Plain]:
    """Build a chain of ten equations beside one that nothing needs; an input is an output, too."""
    w = Builder(submission)
    a, b = w.input(2), w.input(2)
    value = a
    for op in ("neg", "exp", "add", "sub", "mul", "log", "maximum", "neg", "div", "add"):
        value = w.equation(op, [value] if op in ("neg", "exp", "log") else [value, b], 2)
    w.equation("mul", [value, value], 2)
    return w.program(value, a), w.equations[:-1]


def _needed(equations: list[Plain], outputs: Plain) -> Plain:
    """Return the equations that lead to these outputs, in order."""
    needed, kept = [*outputs], []
    for equation in reversed(equations):
        if equation[2] in needed:
            kept.append(equation)
            needed += equation[1]
    return kept[::-1]


def _live(submission: Submission, *more: tuple[Plain, Plain]) -> Iterator[tuple[Plain, Plain, Plain]]:
    """Yield programs, drawn or given, the student's `live` of each, and the equations that it needs."""
    programs = _program_with_dead_code(submission), *(_drawn_program(submission) for _ in range(4)), *more
    for i, (given_program, all_needed) in enumerate(programs):
        # it may be left out, and there is nothing to choose where there are no outputs
        option = submission.parameters.live_option if i and given_program[2] else ""
        program, needed, options = _chosen(submission.rng, option, given_program, all_needed, chosen=i != 1)
        argument = f", with {next(iter(options))}={next(iter(options.values()))}" if options else ""
        lead = f"{len(needed)} of which lead to the outputs"
        with expect.case(f"a program of {len(program[1])} equations, {lead}{argument}"):
            answer = submission.call(PROBES + "live_result", submission.value("live"), given_program, options)
            report = expect.mapping(answer, ("program", "changed"), "what `live` does")
            result = _listed(report["program"]) if isinstance(report["program"], list | tuple) else []
            valid = len(result) == 3 and all(isinstance(part, list) for part in result)
            what = "`live` does not return a Program"
            expect.true(valid, what, expected="Program", got=report["program"])
            expect.true(report["changed"] is False, "`live` changes the program that is passed to it")
            yield program, result, needed


def _chosen(
    rng: np.random.Generator, option: str, program: Plain, needed: Plain, *, chosen: bool
) -> tuple[Plain, Plain, dict[str, Any]]:
    """Choose one of two outputs, or neither, by the argument that `live` has in this variant, if any.

    Returns:
        The program with the output that was chosen, the equations that it needs, and the argument by its name.
    """
    if not option:
        return program, needed, {}
    inputs, equations, outputs = program
    index = 0 if option == "count" else int(rng.integers(2))
    used = [chosen and index == i for i in range(2)]
    left = [output for output, use in zip(outputs, used, strict=True) if use]
    value = {"used": used, "outputs": left, "count": len(left)}[option]
    return [inputs, equations, left], _needed(equations, left), {option: value}


def _named(equations: Plain) -> str:
    return ", ".join(str(equation[0]) for equation in equations) or "none"


@points(1)
def what_nobody_needs_is_gone(submission: Submission) -> None:
    """`live` removes equations that no output needs."""
    without_outputs = [*_chain(submission)[0][:2], []], []
    for (_, equations, _), (_, remaining, _), needed in _live(submission, without_outputs):
        expect.true(bool(remaining) or not needed, "no equation remains after `live`", hint="keep what an output needs")
        dead = [equation for equation in remaining if equation in equations and equation not in needed]
        what, hint = "dead equations remain after `live`", "who needs an equation: which others, and who needs those?"
        expect.true(not dead, what, expected=_named(needed), got=_named(dead), hint=hint)


@points(1)
def what_outputs_need_stays(submission: Submission) -> None:
    """`live` keeps everything that an output needs, in order, and the program's inputs and outputs."""
    removed = 0
    for (inputs, equations, outputs), result, needed in _live(submission, _chain(submission)):
        removed += len(equations) - len(result[1])
        got = [equation for equation in result[1] if equation in needed]
        what = "needed equations are missing or out of order after `live`"
        hint = "first the outputs are needed; each equation that is needed makes its operands needed; the order stays"
        expect.true(got == needed, what, expected=_named(needed), got=_named(got), hint=hint)
        expect.equal(
            result[0], inputs, "the program of `live` has the wrong inputs", hint="the inputs are its signature"
        )
        expect.equal(result[2], outputs, "the program of `live` has the wrong outputs")
    expect.true(removed > 0, "`live` keeps every equation", hint="which equations does no output need?")


TASKS = (
    Task(
        "P5.5",
        "A tracer in one page",
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
        varies=(EVALUATED, LIVE_OPTION),
        minutes=35,
        libraries=TAPE,
    ),
)
