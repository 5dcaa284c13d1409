"""Every typical wrong solution loses exactly its points and gets a message that says why; every right one gets all."""

from __future__ import annotations

import contextlib
import re
import shutil
from collections import defaultdict
from collections.abc import Iterator
from pathlib import Path

import pytest

from mlhood.exchange import lenet_onnx
from mlhood.grading.checks.marks import CheckResult, Marks, TaskResult
from mlhood.grading.checks.task import Project
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.execution.kernel import NewKernel
from mlhood.grading.notebooks.notebook import label
from mlhood.grading.notebooks.source_notebook import stub_solutions
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.p3 import timed
from mlhood.kernels import loops
from tests.grading.forked_kernel import SUPPORTED, ForkServer
from tests.grading.projects import (
    p1_right,
    p1_wrong,
    p2_right,
    p2_wrong,
    p3_right,
    p3_wrong,
    p4_right,
    p4_wrong,
    p5_right,
    p5_wrong,
)
from tests.grading.projects.examples import Mistake
from tests.grading.projects.quick import measure_less, quick_source, small_layers, source_notebook, use_exported
from tests.tools.grading.mutation_score import NotebookRun, TaskRun

# In the order of the tasks: the right notebook runs on from one to the next.
WRONG: list[Mistake] = sorted(
    (*p1_wrong.WRONG, *p2_wrong.WRONG, *p3_wrong.WRONG, *p4_wrong.WRONG, *p5_wrong.WRONG),
    key=lambda entry: (entry.task[:2], int(entry.task[3:])),
)
RIGHT: dict[str, dict[str, dict[str, str]]] = {
    "P1": p1_right.RIGHT,
    "P2": p2_right.RIGHT,
    "P3": p3_right.RIGHT,
    "P4": p4_right.RIGHT,
    "P5": p5_right.RIGHT,
}
STYLES = [(project, style) for project, styles in RIGHT.items() for style in styles]
# The first style of each project is graded as a notebook, since right solutions of different tasks must work together,
# and so are all of P1 and P3, where they build on each other. The others are graded task by task in a kernel in which
# the right notebook runs.
FIRST = [(project, next(iter(styles))) for project, styles in RIGHT.items()]
# The suite grades one of them: that each source notebook is right is shown by the checks in its notebook.
IN_SUITE = [each for each in FIRST if each[0] == "P4"]
WHOLE = [*FIRST, *((project, style) for project, style in STYLES if project in ("P1", "P3"))]
SECRET_SEED = 20_260_117
EMPTY = "pass"  # the source of a cell without a solution
PLAIN_LOOPS = ("P3", "plain loops")
pytestmark = pytest.mark.slow


def project_of(entry: Mistake) -> str:
    return entry.task.split(".")[0]


def notebook_index(entry: Mistake) -> int:
    """Wrong solutions of different tasks share a notebook: the k-th of each task are in notebook k, if it is graded.

    This way a check that fails because of another task's fault is noticed, and the example solutions needs few
    notebooks.
    """
    same = [other for other in WRONG if other.task == entry.task]
    # in a kernel that has run the solution, a table that a cell leaves empty would be filled
    same.sort(key=lambda other: EMPTY not in other.cells.values())
    return [other.name for other in same].index(entry.name)


# So many notebooks of wrong solutions are graded of each project. The solutions that are left are graded one after the
# other in a kernel in which the right notebook runs: that one task's fault costs no other has been shown by then.
NOTEBOOKS = 1
WRONG_NOTEBOOKS = [(project, index) for project in RIGHT for index in range(NOTEBOOKS)]


def failed_checks(result: TaskResult) -> list[CheckResult]:
    """The failed checks, without one that only other programs on this machine have left undecided."""
    return [check for check in result.checks if check.status == "failed"]


def messages_of(failed: list[CheckResult]) -> str:
    """What the failed checks say, in full."""
    return "\n".join(" ".join([f"{check.name}: {check.what}", *check.parts.values()]) for check in failed)


def is_as_expected(result: TaskResult, entry: Mistake) -> bool:
    """Whether exactly the checks fail that the entry names; races that stay undecided do not count."""
    undecided = {check.name for check in result.checks if check.status == "undecided"}
    failed = {check.name for check in failed_checks(result)}
    return failed | (undecided & set(entry.loses)) == set(entry.loses)


class ExampleGrader:
    """Grades notebooks of the example solutions, each when it is first asked for."""

    def __init__(self, base: Path, kernels: NewKernel | None) -> None:
        self.base = base
        self.settings = RunSettings(SECRET_SEED, kernels=kernels)
        self.marks: dict[tuple[str, object], Marks] = {}
        self.styles: dict[tuple[str, str], dict[str, TaskResult]] = defaultdict(dict)
        self.opened = contextlib.ExitStack()
        self.stopped: TaskRun | None = None

    def marks_of(self, project: str, notebook: object) -> Marks:
        """Marks of a notebook of wrong solutions, by its index, or of right ones, by the name of its style."""
        if (project, notebook) not in self.marks:
            cells = RIGHT[project][notebook] if isinstance(notebook, str) else _wrong_cells(project, notebook)
            with pytest.MonkeyPatch.context() as monkeypatch:
                if (project, notebook) == PLAIN_LOOPS:  # the course's version runs as uncompiled loops, too
                    monkeypatch.setattr(timed, "RESNET18", small_layers(8, 14))
                    monkeypatch.setattr(loops, "conv_naive", loops.conv_naive.py_func)
                self.marks[project, notebook] = self._grade(PROJECTS[project], cells)
        return self.marks[project, notebook]

    def result_of(self, entry: Mistake) -> TaskResult:
        """The result of the task that an entry solves in a wrong way."""
        project, index = project_of(entry), notebook_index(entry)
        if index < NOTEBOOKS:
            return next(task for task in self.marks_of(project, index).tasks if task.id == entry.task)
        run = self.stop_at(entry.task)
        result = run.grade(run.solution | entry.cells)
        if is_as_expected(result, entry):
            return result
        run.restart()  # an earlier one may have damaged the kernel
        return run.grade(run.solution | entry.cells)

    def stop_at(self, task_id: str) -> TaskRun:
        """Run the right notebook up to where a task is graded, unless it has stopped there.

        On the way, each task is graded with its solution in every style.
        """
        project = PROJECTS[task_id.split(".")[0]]
        if self.stopped and self.stopped.task.id == task_id:
            return self.stopped
        tasks = [task.id for task in project.tasks]
        at = self.stopped.task.id if self.stopped else ""
        if at not in tasks or tasks.index(at) > tasks.index(task_id):
            self.close()
            files, kernels = self._files(project.id), self.settings.kernels
            self.right = self.opened.enter_context(NotebookRun(quick_source(project.id), project, files, kernels))
            self.stops = self.right.tasks(project.tasks)
        elif self.stopped:
            self.stopped.grade(self.stopped.solution)  # later cells need it
        for stop in self.stops:
            self.stopped = stop
            self._grade_styles(project.id, stop)
            if stop.task.id == task_id:
                return stop
        raise KeyError(task_id)

    def _grade_styles(self, project: str, run: TaskRun) -> None:
        styles = [
            (style, own)
            for style, cells in RIGHT[project].items()
            if (project, style) not in WHOLE and (own := {name: cells[name] for name in run.solution.keys() & cells})
        ]
        for style, own in styles:
            self.styles[project, style][run.task.id] = run.grade(run.solution | own)
        if styles:
            run.grade(run.solution)  # later cells need it

    def close(self) -> None:
        """End the kernel in which a right notebook runs."""
        self.stopped = None
        self.opened.close()

    def _files(self, project: str) -> tuple[Path, ...]:
        """A file of P1 for P2, so that its notebooks do not each train a network."""
        if project != "P2":
            return ()
        lenet_onnx(self.base / "lenet.onnx")
        return (self.base / "lenet.onnx",)

    def _grade(self, project: Project, cells: dict[str, str]) -> Marks:
        folder = self.base / f"{project.id}-{len(self.marks)}"
        folder.mkdir()
        for file in self._files(project.id):
            shutil.copy(file, folder)
        notebook, exported = quick_source(project.id, cells), self.base / f"{project.id}-resnet18.onnx"
        if exported.exists():
            use_exported(notebook, exported)
        marks = grade(notebook, project, folder, self.settings)
        if not exported.exists() and (folder / "resnet18.onnx").exists():
            shutil.copy(folder / "resnet18.onnx", exported)
        return marks


def _wrong_entries(project: str, index: object) -> list[Mistake]:
    return [entry for entry in WRONG if (project_of(entry), notebook_index(entry)) == (project, index)]


def _wrong_cells(project: str, index: object) -> dict[str, str]:
    return {cell_id: source for entry in _wrong_entries(project, index) for cell_id, source in entry.cells.items()}


@pytest.fixture(scope="module")
def examples(tmp_path_factory) -> Iterator[ExampleGrader]:
    base = tmp_path_factory.mktemp("examples")
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setenv("OMP_NUM_THREADS", "1")  # another pytest worker may use the other core
        monkeypatch.setenv("JAX_COMPILATION_CACHE_DIR", str(base / "xla"))  # most of what they compile is the same
        monkeypatch.setenv("JAX_PERSISTENT_CACHE_MIN_COMPILE_TIME_SECS", "0")
        measure_less(monkeypatch.setattr)
        with ForkServer() if SUPPORTED else contextlib.nullcontext() as kernels:
            grader = ExampleGrader(base, kernels.kernel if kernels else None)
            yield grader
            grader.close()


# The suite grades a wrong notebook of each project, a right and an empty one of P4; the rest is exhaustive.
@pytest.mark.parametrize(
    "entry",
    [
        pytest.param(
            entry,
            id=f"{entry.task} {entry.name}",
            marks=() if notebook_index(entry) < NOTEBOOKS else pytest.mark.exhaustive,
        )
        for entry in WRONG
    ],
)
def test_a_wrong_solution_loses_exactly_its_points(entry, examples):
    result = examples.result_of(entry)
    failed = failed_checks(result)
    assert is_as_expected(result, entry), messages_of(failed)
    if len(failed) < len(entry.loses):  # other programs on this machine have disturbed a race: it has no message
        return
    messages = messages_of(failed)
    assert re.search(entry.message, messages), messages


@pytest.mark.parametrize(("project", "index"), WRONG_NOTEBOOKS)
def test_other_tasks_of_the_notebook_keep_their_points(project, index, examples):
    wrong = {entry.task for entry in _wrong_entries(project, index)}
    others = [task for task in examples.marks_of(project, index).tasks if task.id not in wrong]
    failed = [check for task in others for check in failed_checks(task)]
    assert not failed, messages_of(failed)


@pytest.mark.parametrize(
    ("project", "style"),
    [
        pytest.param(*style, id="-".join(style), marks=() if style in IN_SUITE else pytest.mark.exhaustive)
        for style in STYLES
    ],
)
def test_a_right_solution_in_any_style_gets_all_points(project, style, examples):
    if (project, style) in WHOLE:
        marks = examples.marks_of(project, style)
        assert marks.points == 100 - marks.skipped
        tasks = marks.tasks
    else:
        examples.stop_at(PROJECTS[project].tasks[-1].id)
        tasks = list(examples.styles[project, style].values())
    failed = [check for task in tasks for check in failed_checks(task)]
    assert not failed, messages_of(failed)
    assert tasks
    assert all(task.earned == task.points for task in tasks if not task.undecided)


@pytest.mark.parametrize(
    "project", [pytest.param(project, marks=() if project == "P4" else pytest.mark.exhaustive) for project in RIGHT]
)
def test_an_empty_notebook_gets_no_points_and_a_message_where_to_begin(project, examples, tmp_path):
    notebook = source_notebook(project)
    for cell in notebook.cells:
        if (metadata := label(cell)) and metadata.role == "solution":
            cell.source = stub_solutions(cell, cell.id)
    marks = grade(notebook, PROJECTS[project], tmp_path, examples.settings)
    assert marks.earned == 0
    first = marks.tasks[0].checks[0]
    assert "not written yet" in first.what, first


@pytest.mark.parametrize("project", [PROJECTS[name] for name in RIGHT], ids=lambda project: project.id)
def test_the_examples_cover_every_check(project: Project):
    covered = {(entry.task, name) for entry in WRONG for name in entry.loses if project_of(entry) == project.id}
    assert covered == {(task.id, check.name) for task in project.tasks for check in task.checks}
