"""Checks of P1.6: the graph as a table."""

from __future__ import annotations

import tempfile
from collections import Counter
from pathlib import Path

from mlhood.grading.checks import expect
from mlhood.grading.checks.submission import Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.projects.p1 import reference
from mlhood.grading.projects.p1.libraries import TORCH_AND_ONNX
from mlhood.grading.rpc.server import write_fresh
from mlhood.grading.variants.parameter import Parameter

# the columns of the table: what is said of an operator's output, of its weights, and of its work
OUTPUT = Parameter("output_column", ("output", "size", "output_bytes"))
STORED = Parameter("stored_column", ("parameters", "bytes", "bytes_float16"))
WORK = Parameter("work_column", ("macs", "flop", "macs_of_8"))


def _drawn(submission: Submission, column: str) -> tuple[dict[str, list], dict[str, list]]:
    """Return columns of the student's table for a network that nobody has seen, and of the solution's."""
    model = reference.small_cnn_onnx(submission.rng)
    with tempfile.TemporaryDirectory() as folder:  # where no student's code writes
        right = submission.solution("operator_table", str(write_fresh(Path(folder, "unseen.onnx"), model)))
    got = _columns(submission, write_fresh(submission.scratch / "unseen.onnx", model), column)
    return got, {name: right[name].tolist() for name in ("op", column)}


def _columns(submission: Submission, path: Path, column: str) -> dict[str, list]:
    """Return the operators and another column of the student's table for the graph in `path`."""
    table = submission.call("operator_table", str(path))
    columns = {str(name): list(table[name]) for name in getattr(table, "columns", ())}
    hint = "a pandas DataFrame; an index is no column"
    expect.mapping(columns, ("op", column), "what `operator_table` returns", hint=hint)
    if column != OUTPUT.default:
        what = f"the column `{column}` of `operator_table`"
        columns[column] = [expect.integer(value, what) for value in columns[column]]
    return {"op": list(map(str, columns["op"])), column: columns[column]}


def _totals(columns: dict[str, list]) -> Counter[str]:
    """Sum a column by operator."""
    totals: Counter[str] = Counter()
    for op, value in zip(*columns.values(), strict=True):
        totals[op] += value
    return totals


def _check_totals(submission: Submission, column: str, hint: str) -> None:
    got, want = map(_totals, _drawn(submission, column))
    for op, count in want.items():
        given = "a small network that you have not seen"
        expect.equal(got[op], count, f"the {column} of {op} are wrong", given=given, hint=hint)


@points(2, solved=True)
def rows_follow_the_graph(submission: Submission) -> None:
    """`operator_table` has one row per node, in graph order, with the {{ {"size": "size of the node's output", "output_bytes": "bytes of the node's output"}.get(output_column, "node's output shape") }}."""  # noqa: E501 a template
    name = submission.parameters.output_column
    got, want = _drawn(submission, name)
    expect.equal(got["op"], want["op"], "the rows are not the nodes in graph order")
    hint = "`shapes_of` knows the shape of each value by its name, with a batch of 1; a node names its outputs in order"
    hint += "" if name == OUTPUT.default else "; how many numbers is that?"
    for op, output, right in zip(want["op"], got[name], want[name], strict=True):
        output = list(output) if isinstance(output, tuple) else output
        expect.equal(output, right, f"the `{name}` of {op} is wrong", hint=hint)


@points(3, solved=True)
def parameters_are_counted(submission: Submission) -> None:
    """`operator_table` counts the {{ {"bytes": "bytes of the parameters", "bytes_float16": "bytes of the parameters in float16"}.get(stored_column, "parameters") }} of each operator, for any graph."""  # noqa: E501 a template
    hint = "add up the sizes of the node's inputs that are float initializers, bias included, shared or not"
    _check_totals(submission, submission.parameters.stored_column, hint)


@points(4, solved=True)
def multiply_accumulates_are_counted(submission: Submission) -> None:
    """`operator_table` counts the {{ {"flop": "operations", "macs_of_8": "multiply-accumulates for eight images"}.get(work_column, "multiply-accumulates") }} of each operator, for any graph."""  # noqa: E501 a template
    hint = (
        "count for one output number first: how many products are in its sum? Then: how many such numbers are there? "
        "The input's size does not matter, padding, strides and groups show in the shapes"
    )
    _check_totals(submission, submission.parameters.work_column, hint)


@points(3)
def questions_are_answered(submission: Submission) -> None:
    """`answers` names the operators with the most {{ "parameters" if stored_column == "parameters" else "bytes of parameters" }} and the most {{ "operations" if work_column == "flop" else "multiply-accumulates" }}."""  # noqa: E501 a template
    stored, work = submission.parameters.stored_column, submission.parameters.work_column
    answers = expect.mapping(submission.value("answers"), (f"most_{stored}", f"most_{work}"), "`answers`")
    for column, truth, hint in (
        (stored, "Gemm", "all layers of a type together, not the largest alone"),
        (work, "Conv", "which one reuses its weight, and how often?"),
    ):
        got, what = str(answers[f"most_{column}"]).strip(), f"`answers['most_{column}']` is wrong for LeNet"
        right = got.lower() in (truth.lower(), _from_own_table(submission, column))
        expect.true(right, what, expected=truth, got=got, hint=f"add up by operator type: {hint}")


def _from_own_table(submission: Submission, column: str) -> str:
    """The answer by the student's own table: a wrong table read correctly costs only the table's points.

    Raises:
        CheckFailed: There is no table to read, or it has the same rows for every network.
    """
    path, other = submission.scratch / "lenet.onnx", submission.scratch / "other-widths.onnx"
    write_fresh(path, submission.file("lenet.onnx").read_bytes())
    totals = _totals(_columns(submission, path, column))
    write_fresh(other, reference.mlp_onnx(submission.rng, int(submission.rng.integers(20, 60)))[1])
    expect.true(
        totals != _totals(_columns(submission, other, column)),
        "the answers are not read from a table: `operator_table` returns the same for every network",
        expected="other numbers for a network of other operators",
        hint="compute the rows from the graph in the file `path`",
    )
    heaviest = max(totals, key=lambda op: totals[op], default="").lower()
    return heaviest if heaviest in ("conv", "gemm", "relu", "maxpool") and any(totals.values()) else ""


P1_6 = Task(
    "P1.6",
    "Read the graph into a table",
    varies=(OUTPUT, STORED, WORK),
    libraries=TORCH_AND_ONNX,
    minutes=35,
    builds_on=("P1.4",),
)
