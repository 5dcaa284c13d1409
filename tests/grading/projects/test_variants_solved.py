"""The tasks of drawn variants are solved by the source notebooks made for them, and hardly by the public solutions.

Solutions run in this process, on what the notebook imports and on the solutions before them. Tasks that need more of
their notebook, such as a trained network or a measured table, are proven by `python -m tests.tools.grading variants`.
"""

from __future__ import annotations

import ast
import contextlib
import tempfile
from collections.abc import Iterable, Iterator
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from nbformat import NotebookNode

from mlhood.exchange import export
from mlhood.grading.checks.marks import TaskResult, grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.checks.task import Project
from mlhood.grading.notebooks.notebook import label, read
from mlhood.grading.notebooks.source_notebook import source_of_variant
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import parameters_of, variant, with_values
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.grading.variants.parameter import defaults
from mlhood.models.networks import LeNet
from tests.tools.grading.variant_proof import MAX_PUBLIC, VARIANT_NAMES, covering_values

ROOT = Path(__file__).parents[3]
SEEDS = (11, 12, 13, 14)  # the suite takes the first
# by project, the tasks that need nothing but imports and earlier solutions
TASKS = {
    "P1": ("P1.1", "P1.2", "P1.6", "P1.7", "P1.8", "P1.9"),
    "P2": ("P2.1", "P2.2", "P2.3", "P2.4", "P2.5", "P2.6", "P2.7", "P2.9", "P2.10", "P2.12", "P2.13"),
    "P3": ("P3.1", "P3.2", "P3.3", "P3.4", "P3.7", "P3.9", "P3.10", "P3.11"),
    "P4": ("P4.1", "P4.2", "P4.3", "P4.4", "P4.7", "P4.8", "P4.9"),
    "P5": ("P5.1", "P5.2", "P5.4", "P5.5", "P5.6", "P5.7"),
}
# the given cells that they need
GIVEN = {"P1": ("P1-6-given-1",), "P3": ("given-2", "P3-2-given-1", "P3-7-given-1"), "P4": ("P4-9-given-1",)}


@cache
def public_source(project: str) -> NotebookNode:
    return read(ROOT / f"{project}.ipynb")


@cache
def untrained_lenet() -> bytes:
    """What P1 exports, with the weights it begins with."""
    with tempfile.TemporaryDirectory() as folder:
        export(LeNet().eval(), np.zeros((2, 1, 32, 32), np.float32), path := Path(folder, "lenet.onnx"))
        return path.read_bytes()


@cache
def drawn(project: str, variant_name: str) -> tuple[Project, NotebookNode]:
    """A project of a variant, or of those that cover every value by this name; its solved source notebook."""
    values = covering_values(PROJECTS[project]).get(variant_name)
    varied = with_values(PROJECTS[project], values) if values else variant(PROJECTS[project], variant_name)
    return varied, source_of_variant(public_source(project), varied)


def imports(book: NotebookNode) -> str:
    """The imports of a notebook's own cells."""
    found = []
    for cell in book.cells:
        if cell.cell_type == "code" and not cell.source.startswith("%%"):
            found += [node for node in ast.parse(cell.source).body if isinstance(node, ast.Import | ast.ImportFrom)]
    return "\n".join(dict.fromkeys(map(ast.unparse, found)))


def solutions(book: NotebookNode, tasks: tuple[str, ...]) -> Iterator[str]:
    """The sources of the cells that solve tasks, in the notebook's order."""
    for cell in book.cells:
        if (labelled := label(cell)) and labelled.role == "solution" and labelled.task in tasks:
            yield cell.source


def marks(
    project: str, variant_name: str, task_id: str, book: NotebookNode, folder: Path, seed: int = SEEDS[0]
) -> TaskResult:
    """The marks of a notebook's solution of a task; the solutions before it are those of the variant."""
    varied, source_notebook = drawn(project, variant_name)
    return marks_of(varied, source_notebook, task_id, solutions(book, (task_id,)), folder, seed)


def marks_of(
    varied: Project,
    source_notebook: NotebookNode,
    task_id: str,
    sources: Iterable[str],
    folder: Path,
    seed: int = SEEDS[0],
) -> TaskResult:
    """The marks of these solution cells of a task; the solutions before it are those of the variant."""
    earlier = TASKS[varied.id][: TASKS[varied.id].index(task_id)]
    names: dict[str, Any] = {"__name__": "__main__"}
    (folder / "lenet.onnx").write_bytes(untrained_lenet())
    given = (cell.source for cell in source_notebook.cells if cell.id in GIVEN.get(varied.id, ()))
    with contextlib.chdir(folder):
        for source in (imports(source_notebook), *given, *solutions(source_notebook, earlier), *sources):
            exec(source, names)
    task = varied.task(task_id)
    assert task
    return grade_task(task, Session(LocalTransport(names), folder, folder), seed)


def with_variants(cases: Iterable[tuple[str, ...]]) -> list[Any]:
    """Each case with each variant; in the suite, which takes one variant after the other, with one of them."""
    return [
        pytest.param(
            *case,
            variant_name,
            marks=() if variant_name == VARIANT_NAMES[n % len(VARIANT_NAMES)] else pytest.mark.exhaustive,
        )
        for n, case in enumerate(cases)
        for variant_name in VARIANT_NAMES
    ]


@pytest.mark.parametrize(
    ("project", "task_id", "variant_name"),
    with_variants((project, task) for project in TASKS for task in TASKS[project]),
)
def test_the_source_of_a_variant_solves_its_task(project, task_id, variant_name, tmp_path):
    result = marks(project, variant_name, task_id, drawn(project, variant_name)[1], tmp_path)
    assert result.full, [(check.name, check.what, check.parts) for check in result.checks if check.status != "passed"]


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("project", "task_id", "name"),
    [
        (project, task, name)
        for project, tasks in TASKS.items()
        for name in ("", *covering_values(PROJECTS[project]))
        for task in tasks
    ],
)
def test_the_source_solves_its_task_whatever_is_drawn(project, task_id, name, tmp_path):
    book = drawn(project, name)[1]
    for seed in SEEDS:
        result = marks(project, name, task_id, book, tmp_path, seed)
        failed = [(check.name, check.what, check.parts) for check in result.checks if check.status != "passed"]
        assert not failed, f"seed {seed}"


@pytest.mark.parametrize(
    ("project", "variant_name"),
    [
        pytest.param(
            project,
            variant_name,
            marks=() if (project, variant_name) == ("P4", VARIANT_NAMES[0]) else pytest.mark.exhaustive,
        )
        for project in TASKS
        for variant_name in VARIANT_NAMES
    ],
)
def test_the_public_solutions_get_at_most_thirty_percent(project, variant_name, tmp_path):
    results = [marks(project, variant_name, task_id, public_source(project), tmp_path) for task_id in TASKS[project]]
    earned, points = (sum(values) for values in zip(*((r.earned, r.points) for r in results), strict=True))
    assert earned <= MAX_PUBLIC * points, {result.id: (result.earned, result.points) for result in results}


# a task, the parameter that gives its functions an optional argument, and the names of that argument
OPTIONS = (
    ("P1.1", "layers_argument", "classes", "channels", "maps"),
    ("P1.2", "forward_argument", "features", "probabilities"),
    ("P2.1", "relu_argument", "ceiling", "slope", "threshold"),
    ("P2.4", "rewrite_argument", "keep", "only"),
    ("P2.6", "choice_argument", "bits", "headroom", "narrow"),
    ("P3.2", "direct_argument", "dilation", "flip", "fill"),
    ("P3.4", "blas_argument", "relu", "scale", "limit"),
    ("P3.7", "gemm_argument", "alpha"),
    ("P5.6", "conv_option", "relu", "scale", "flip"),
)


class UnusableDefault(ast.NodeTransformer):
    """Gives an optional argument a default with which nothing can be computed."""

    def __init__(self, argument: str) -> None:
        self.argument, self.found = argument, 0

    def visit_arguments(self, node: ast.arguments) -> ast.arguments:
        optional = [argument.arg for argument in node.args[len(node.args) - len(node.defaults) :]]
        if self.argument in optional:
            self.found += 1
            node.defaults[optional.index(self.argument)] = ast.Name("NotImplemented", ast.Load())
        return node


@pytest.mark.parametrize(
    ("task_id", "name", "argument"),
    [
        pytest.param(task, name, value, marks=() if task in ("P2.1", "P5.6") else pytest.mark.exhaustive)
        for task, name, *values in OPTIONS
        for value in values
    ],
)
def test_checks_leave_out_an_optional_argument(task_id, name, argument, tmp_path):
    project = PROJECTS[task_id.partition(".")[0]]
    varied = with_values(project, defaults(parameters_of(project)) | {name: argument})
    source_notebook, replaced = source_of_variant(public_source(project.id), varied), UnusableDefault(argument)
    wrong = [ast.unparse(replaced.visit(ast.parse(source))) for source in solutions(source_notebook, (task_id,))]
    assert replaced.found
    assert not marks_of(varied, source_notebook, task_id, wrong, tmp_path).full


# a task, a parameter with its value, and what makes its solution wrong for the arguments at an edge
EDGES = (
    ("P1.9", "cut_nodes", 3, "graph.node[-3].input[0]", "graph.node[-4].output[0]"),
    ("P2.1", "relu_argument", "slope", "total if total > 0 else slope * total", "max(total, slope * total)"),
    ("P2.1", "relu_argument", "threshold", "total > threshold", "total >= threshold"),
    ("P2.1", "relu_argument", "ceiling", "0), ceiling)", "0), ceiling or np.inf)"),
    ("P2.5", "shrink_argument", "outputs", "    nodes = None", "    outputs and outputs.clear()\n    nodes = None"),
    ("P2.6", "choice_argument", "narrow", "-127 if narrow else -128", "-128"),
    ("P2.13", "more_cycles", "issue", "2 * slices + 1", "2 * slices"),
)


@pytest.mark.parametrize(("task_id", "name", "value", "right", "wrong"), EDGES)
def test_checks_draw_the_edges_of_an_argument(task_id, name, value, right, wrong, tmp_path):
    project = PROJECTS[task_id.partition(".")[0]]
    varied = with_values(project, defaults(parameters_of(project)) | {name: value})
    source_notebook = source_of_variant(public_source(project.id), varied)
    sources = list(solutions(source_notebook, (task_id,)))
    assert marks_of(varied, source_notebook, task_id, sources, tmp_path).full
    replaced = [source.replace(right, wrong) for source in sources]
    assert replaced != sources
    assert not marks_of(varied, source_notebook, task_id, replaced, tmp_path).full
