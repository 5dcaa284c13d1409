"""A kernel under attack, and its use in tests."""

from __future__ import annotations

from dataclasses import dataclass

from nbformat.v4 import new_code_cell

from mlhood.grading.checks.marks import TaskResult, grade_task
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.task import Task, points
from mlhood.grading.execution.kernel import CellOutcome
from mlhood.grading.sandbox.kernel import SandboxedKernel
from mlhood.grading.sandbox.limits import MIB, Limits
from tests.waiting import PATIENCE

LIMIT = PATIENCE  # only what does not end is stopped by a limit, a shorter one
SECRET = "the-seed-is-4711"
SMALL = Limits(
    memory=600 * MIB,
    processes=40,
    threads=200,
    descriptors=6000,
    files=400,
    disk=64 * MIB,
    file=128 * MIB,
    seconds=10 * PATIENCE,
)


@points(1)
def f_gives_one(submission):
    """f() gives 1."""
    if submission.call("f") != 1:
        raise AssertionError


TASK = Task("T9.1", "f", (f_gives_one,), seconds=LIMIT)


@dataclass
class Attacked:
    """A kernel in a sandbox."""

    kernel: SandboxedKernel

    def run(self, source: str, seconds: float = LIMIT) -> CellOutcome:
        return self.kernel.run(new_code_cell(source), seconds)

    def eval(self, expression: str) -> str:
        """The printed value of an expression in the student's process, or the name of its exception."""
        cell = new_code_cell(f"try: print({expression})\nexcept BaseException as e: print(type(e).__name__)")
        self.kernel.run(cell, LIMIT)
        return "".join(output.text for output in cell.outputs).strip()  # the kernel may send a line in parts

    @property
    def session(self) -> Session:
        return Session(self.kernel, self.kernel.folder, self.kernel.scratch)

    @property
    def submission(self) -> Submission:
        return Submission(self.session, CheckContext(seconds=LIMIT))

    def graded(self) -> TaskResult:
        return grade_task(TASK, self.session, 0)
