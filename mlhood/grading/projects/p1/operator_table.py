"""Checks of P1.6: the graph as a table."""

from __future__ import annotations

import math
from pathlib import Path

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.libraries import TORCH_AND_ONNX
from mlhood.grading.rpc.file_channel import write_fresh
from mlhood.grading.variants.parameter import Parameter

# the columns of the table: what is said of an operator's output, of its weights, and of its work
OUTPUT = Parameter("output_column", ("output", "size", "output_bytes"))
STORED = Parameter("stored_column", ("parameters", "bytes", "bytes_float16"))
WORK = Parameter("work_column", ("macs", "flop", "macs_of_8"))
# how many of what the column counts are a number, a parameter, a multiply-accumulate
UNITS = {
    "size": 1,
    "output_bytes": 4,
    "parameters": 1,
    "bytes": 4,
    "bytes_float16": 2,
    "macs": 1,
    "flop": 2,
    "macs_of_8": 8,
}


def _columns(submission: Submission, path: Path, *names: str) -> dict[str, list]:
    """Return columns of the student's table for the graph in `path`."""
    table = submission.call("operator_table", str(path))
    columns = {str(name): list(table[name]) for name in getattr(table, "columns", ())}
    hint = "a pandas DataFrame; an index is no column"
    expect.mapping(columns, names, "what `operator_table` returns", hint=hint)
    for name in set(names) & set(UNITS):
        columns[name] = [expect.integer(value, f"the column `{name}` of `operator_table`") for value in columns[name]]
    return columns


def _totals(submission: Submission, path: Path, column: str) -> dict[str, float]:
    """Sum a column of the student's table by operator."""
    columns = _columns(submission, path, "op", column)
    totals: dict[str, float] = {}
    for op, value in zip(columns["op"], columns[column], strict=True):
        totals[str(op)] = totals.get(str(op), 0.0) + value
    return totals


def _unseen_network(submission: Submission) -> tuple[Path, reference.CnnFacts]:
    data, facts = reference.small_cnn_onnx(submission.rng)
    return write_fresh(submission.scratch / "unseen.onnx", data), facts


def _check_totals(submission: Submission, column: str, counts: str, hint: str) -> None:
    path, facts = _unseen_network(submission)
    got = _totals(submission, path, column)
    for op, count in getattr(facts, counts).items():
        given, want = "a small network that you have not seen", UNITS[column] * count
        expect.equal(got.get(op, 0.0), float(want), f"the {column} of {op} are wrong", given=given, hint=hint)


@points(2)
def rows_follow_the_graph(submission: Submission) -> None:
    """`operator_table` has one row per node, in graph order, with the {{ {"size": "size of the node's output", "output_bytes": "bytes of the node's output"}.get(output_column, "node's output shape") }}."""  # noqa: E501 a template
    path, facts = _unseen_network(submission)
    name = submission.parameters.output_column
    columns = _columns(submission, path, "op", name)
    expect.equal([str(op) for op in columns["op"]], list(facts.operators), "the rows are not the nodes in graph order")
    for op, got, want in zip(facts.operators, columns[name], facts.outputs, strict=True):
        if name != "output":
            hint = "`shapes_of` knows the shape of each value by its name, with a batch of 1; how many numbers is that?"
            expect.equal(got, UNITS[name] * math.prod(want), f"the `{name}` of {op} is wrong", hint=hint)
            continue
        expect.true(
            isinstance(got, list | tuple) and list(got) == [1, *want],
            f"the `output` of {op} is wrong",
            expected=f"[1, {', '.join(map(str, want))}], a list or a tuple",
            got=got,
            hint="`shapes_of` knows the shape of each value by its name; a node names its outputs in order",
        )


@points(3)
def parameters_are_counted(submission: Submission) -> None:
    """`operator_table` counts the {{ {"bytes": "bytes of the parameters", "bytes_float16": "bytes of the parameters in float16"}.get(stored_column, "parameters") }} of each operator, for any graph."""  # noqa: E501 a template
    hint = "add up the sizes of the node's inputs that are float initializers, bias included"
    _check_totals(submission, submission.parameters.stored_column, "parameters", hint)


@points(4)
def multiply_accumulates_are_counted(submission: Submission) -> None:
    """`operator_table` counts the {{ {"flop": "operations", "macs_of_8": "multiply-accumulates for eight images"}.get(work_column, "multiply-accumulates") }} of each operator, for any graph."""  # noqa: E501 a template
    hint = (
        "count for one output number first: how many products are in its sum? Then: how many such numbers are there? "
        "The input's size does not matter, padding, strides and groups show in the shapes"
    )
    _check_totals(submission, submission.parameters.work_column, "macs", hint)


@points(3)
def questions_are_answered(submission: Submission) -> None:
    """`answers` names the operators with the most {{ "parameters" if stored_column == "parameters" else "bytes of parameters" }} and the most {{ "operations" if work_column == "flop" else "multiply-accumulates" }}."""  # noqa: E501 a template
    stored, work = submission.parameters.stored_column, submission.parameters.work_column
    answers = expect.mapping(submission.value("answers"), (f"most_{stored}", f"most_{work}"), "`answers`")
    for key, column, truth, hint in (
        (
            f"most_{stored}",
            stored,
            "Gemm",
            "add up by operator type: all layers of a type together, not the largest alone",
        ),
        (f"most_{work}", work, "Conv", "add up by operator type: which one reuses its weight, and how often?"),
    ):
        allowed = {truth.lower(), _from_own_table(submission, column)}
        got = str(answers[key]).strip()
        expect.true(
            got.lower() in allowed, f"`answers['{key}']` is wrong for LeNet", expected=truth, got=got, hint=hint
        )


def _from_own_table(submission: Submission, column: str) -> str:
    """The answer by the student's own table: a wrong table read correctly costs only the table's points.

    Raises:
        CheckFailed: There is no table to read, or it has the same rows for every network.
    """
    path, other = submission.scratch / "lenet.onnx", submission.scratch / "other-widths.onnx"
    write_fresh(path, submission.file("lenet.onnx").read_bytes())
    totals = _totals(submission, path, column)
    write_fresh(other, reference.mlp_onnx(submission.rng, int(submission.rng.integers(20, 60)))[0])
    expect.true(
        totals != _totals(submission, other, column),
        "the answers are not read from a table: `operator_table` returns the same for every network",
        expected="other numbers for a network of other operators",
        hint="compute the rows from the graph in the file `path`",
    )
    heaviest = max(totals, key=lambda op: totals[op], default="").lower()
    return heaviest if heaviest in ("conv", "gemm", "relu", "maxpool") and any(totals.values()) else ""


TASKS = (
    Task(
        "P1.6",
        "Read the graph into a table",
        checks=(
            rows_follow_the_graph,
            parameters_are_counted,
            multiply_accumulates_are_counted,
            questions_are_answered,
        ),
        varies=(OUTPUT, STORED, WORK),
        libraries=TORCH_AND_ONNX,
        minutes=35,
        builds_on=("P1.4",),
    ),
)
