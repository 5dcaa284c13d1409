"""Checks of P1.6: the graph as a table."""

from __future__ import annotations

import re
from pathlib import Path

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.rpc.file_channel import write_fresh


def _columns(submission: Submission, path: Path, *names: str) -> dict[str, list]:
    """Return columns of the student's table for the graph in `path`."""
    table = submission.call("operator_table", str(path))
    columns = {str(name): list(table[name]) for name in getattr(table, "columns", ())}
    hint = "a pandas DataFrame; an index is no column"
    expect.mapping(columns, names, "what `operator_table` returns", hint=hint)
    for name in set(names) & {"parameters", "macs"}:
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


def _check_totals(submission: Submission, column: str, hint: str) -> None:
    path, facts = _unseen_network(submission)
    got = _totals(submission, path, column)
    for op, want in getattr(facts, column).items():
        given = "a small network that you have not seen"
        expect.equal(got.get(op, 0.0), float(want), f"the {column} of {op} are wrong", given=given, hint=hint)


@points(2)
def rows_follow_the_graph(submission: Submission) -> None:
    """`operator_table` has one row per node, in graph order, with the node's output shape."""
    path, facts = _unseen_network(submission)
    columns = _columns(submission, path, "op", "output")
    expect.equal([str(op) for op in columns["op"]], list(facts.operators), "the rows are not the nodes in graph order")
    for op, got, want in zip(facts.operators, columns["output"], facts.outputs, strict=True):
        numbers = [int(text) for text in re.findall(r"\d+", str(got))]
        expect.true(
            tuple(numbers[-len(want) :]) == want,
            f"the `output` of {op} is wrong",
            expected=f"[1, {', '.join(map(str, want))}]",
            got=got,
            hint="`shapes_of` knows the shape of each value by its name; a node names its outputs in order",
        )


@points(3)
def parameters_are_counted(submission: Submission) -> None:
    """`operator_table` counts the parameters of each operator, for any graph."""
    hint = "add up the sizes of the node's inputs that are float initializers, bias included"
    _check_totals(submission, "parameters", hint)


@points(4)
def multiply_accumulates_are_counted(submission: Submission) -> None:
    """`operator_table` counts the multiply-accumulates of each operator, for any graph."""
    hint = (
        "count for one output number first: how many products are in its sum? Then: how many such numbers are there? "
        "The input's size does not matter, padding, strides and groups show in the shapes"
    )
    _check_totals(submission, "macs", hint)


@points(3)
def questions_are_answered(submission: Submission) -> None:
    """`answers` names the operators with the most parameters and the most multiply-accumulates."""
    answers = expect.mapping(submission.value("answers"), ("most_parameters", "most_macs"), "`answers`")
    for key, column, truth, hint in (
        (
            "most_parameters",
            "parameters",
            "Gemm",
            "add up by operator type: all layers of a type together, not the largest alone",
        ),
        ("most_macs", "macs", "Conv", "add up by operator type: which one reuses its weight, and how often?"),
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
    path, other = submission.file("lenet.onnx").resolve(), submission.scratch / "other-widths.onnx"
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
        minutes=35,
        builds_on=("P1.4",),
    ),
)
