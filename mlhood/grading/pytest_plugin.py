"""A pytest plugin: `pytest --submission P1.ipynb` runs a notebook once, and every check is a test with points.

Without `--submission` the plugin does nothing. With it, only submissions are collected, and no file of their
folders is imported: a `conftest.py` beside a submission would run in the grader's own process.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from mlhood.errors import MlhoodError

if TYPE_CHECKING:
    from mlhood.grading.checks.marks import Marks
    from mlhood.grading.checks.task import Check, Project, Task


def pytest_addoption(parser: pytest.Parser) -> None:
    """Declare `--submission` and `--seed`."""
    group = parser.getgroup("mlhood", "marking notebooks of Machine Learning under the hood")
    group.addoption(
        "--submission",
        action="append",
        default=[],
        metavar="P1.ipynb",
        help="mark this notebook and collect nothing else; can be given several times",
    )
    group.addoption(
        "--seed",
        type=int,
        default=None,
        dest="mlhood_seed",
        help="draw the inputs of the checks from this seed (default: a new one, which is printed)",
    )


class SubmissionFile(pytest.File):
    """A notebook that is marked when the first of its checks runs."""

    project: Project
    outcome: Marks | MlhoodError | None = None

    def collect(self) -> Iterator[CheckItem]:
        """Yield the checks, with ids such as `P1.ipynb::P1.3::accuracy`."""
        for task in self.project.tasks:
            for check in task.checks:
                yield CheckItem.from_parent(self, name=f"{task.id}::{check.name}", file=self, task=task, check=check)

    def marks(self) -> Marks:
        """Return the marks; the first call runs the notebook. The test fails if it cannot be run."""
        from mlhood.grading.execution.grade_notebook import RunSettings, grade_file

        if self.outcome is None:
            try:
                with warnings.catch_warnings():
                    warnings.simplefilter("default")  # warning filters of the project's tests must not affect marks
                    self.outcome = grade_file(self.path, RunSettings(self.config.option.mlhood_seed))
            except MlhoodError as error:
                self.outcome = error
        if isinstance(self.outcome, MlhoodError):
            pytest.fail(str(self.outcome), pytrace=False)
        return self.outcome


class CheckItem(pytest.Item):
    """A check as a test; its points go into reports as the properties `points` and `earned`."""

    def __init__(self, *, file: SubmissionFile, task: Task, check: Check, **node: Any) -> None:
        super().__init__(**node)
        self.file, self.task, self.check = file, task, check

    def runtest(self) -> None:
        """Look up the result; one that is not passed is shown as the student's message."""
        checks = next(task.checks for task in self.file.marks().tasks if task.id == self.task.id)
        result = next(result for result in checks if result.name == self.check.name)
        self.user_properties += [("points", result.points), ("earned", result.earned)]
        if result.status == "skipped":
            pytest.skip(result.what)
        if result.status != "passed":
            parts = (f"{label}: {part}" for label, part in result.parts.items())
            pytest.fail("\n".join([result.what, *parts]), pytrace=False)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Return the headline of a failure."""
        return self.path, None, f"{self.task.id} {self.check.title} ({self.check.points:g} points)"


FILES = pytest.StashKey[list[SubmissionFile]]()


@pytest.hookimpl(tryfirst=True)
def pytest_collection(session: pytest.Session) -> bool | None:
    """Collect the submissions instead of files, without nbval and other collectors."""
    paths = list(dict.fromkeys(session.config.option.submission))
    if not paths:
        return None
    try:
        files = [_open(session, path) for path in paths]
    except MlhoodError as error:
        raise pytest.UsageError(str(error)) from None
    session.config.stash[FILES] = files
    session.items = [item for file in files for item in session.genitems(file)]
    hook = session.config.hook
    hook.pytest_collection_modifyitems(session=session, config=session.config, items=session.items)
    hook.pytest_collection_finish(session=session)
    session.testscollected = len(session.items)
    return True


def _open(session: pytest.Session, name: str) -> SubmissionFile:
    from mlhood.grading.notebooks.notebook import project_of, read

    path = session.config.invocation_params.dir / name
    project = project_of(read(path), path)
    file = SubmissionFile.from_parent(session, path=path, nodeid=Path(name).as_posix())
    file.project = project
    return file


def pytest_terminal_summary(terminalreporter: Any, config: pytest.Config) -> None:
    """Print the marks of every submission that was run."""
    from mlhood.grading.reports.marks_text import summary_text

    for file in config.stash.get(FILES, []):
        if file.outcome is None or isinstance(file.outcome, MlhoodError):
            continue
        terminalreporter.section(f"marks of {file.nodeid}")
        terminalreporter.write_line(summary_text(file.outcome))
        terminalreporter.write_line(f"The same inputs again: --seed {file.outcome.seed}")
        if names := ", ".join(question.id for question in file.project.questions):
            terminalreporter.write_line(f"The written questions ({names}) are marked by hand, for bonus points.")
