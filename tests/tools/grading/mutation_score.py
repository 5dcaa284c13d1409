"""How many mutants of its solution a task's checks refuse, and how many of its style variants they accept.

A mutant is killed if one of the task's checks fails. A measurement that stays undecided, as other programs disturb it,
kills none, and refuses no style variant. A mutant that nothing distinguishes from the solution is equivalent, and
listed in `equivalent/` with the reason; the mutation score is the share of killed ones among the others.
"""

from __future__ import annotations

import ast
import random
import re
import tempfile
import time
import tomllib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from nbformat import NotebookNode
from nbformat.v4 import new_code_cell

from mlhood.errors import GradingError
from mlhood.grading.checks.marks import CheckResult, TaskResult, grade_task
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.checks.task import Project, Task
from mlhood.grading.execution.kernel import Kernel, NewKernel, NotebookKernels
from mlhood.grading.notebooks.notebook import cell_name
from mlhood.grading.notebooks.restore import FEEDBACK_ROLES, RestoredCell, grading_points, restore
from mlhood.grading.notebooks.source_notebook import solution_source
from tests.tools.grading.mutants import APPLIED, Mutant, mutants
from tests.tools.grading.styles import styles

GOAL = 0.95
SEED = 20_260_117
EQUIVALENT = Path(__file__).parent / "equivalent"
CELL_SECONDS = 300.0
CONTROL = 12  # the solution is graded again after so many mutants: one may have damaged what the others need


@dataclass(frozen=True)
class EquivalentMutant:
    """A mutant that is equivalent, in the course as it is published or in its variants.

    Args:
        cell: Name of the solution cell.
        change: Matches the whole change.
        reason: Why.
    """

    cell: str
    change: re.Pattern[str]
    reason: str

    @classmethod
    def from_row(cls, row: dict[str, str]) -> EquivalentMutant:
        """Parse an entry, whose change is literal, or a `pattern`: a regular expression that variants match, too.

        Raises:
            KeyError: A value is missing.
            re.error: The pattern is invalid.
        """
        pattern = row["pattern"] if "pattern" in row else re.escape(row["change"])
        return cls(row["cell"], re.compile(pattern), row["reason"].strip())

    def matches(self, cell: str, mutant: Mutant) -> bool:
        """Return whether it is this mutant of a cell."""
        return self.cell == cell and self.change.fullmatch(mutant.change) is not None


@dataclass(frozen=True)
class Verdict:
    """What became of a mutant.

    Args:
        cell: Name of the solution cell that it is in.
        mutant: The change.
        failed: Names of the checks that failed, none if it survived.
        named: Whether the message of one of them names the function that was changed.
        reason: Why it is equivalent, if it is.
    """

    cell: str
    mutant: Mutant
    failed: tuple[str, ...]
    named: bool = False
    reason: str = ""

    @property
    def state(self) -> str:
        """Killed, equivalent or survived."""
        if self.failed:
            return "killed"
        return "equivalent" if self.reason else "survived"

    def __str__(self) -> str:
        return f"{self.cell}:{self.mutant.line}: {self.mutant.kind}: {self.mutant.change}"


@dataclass
class Score:
    """The verdicts on the mutants of a task, and on the style variants of its solution.

    Args:
        task: Its id.
        verdicts: On the mutants.
        accepted: Style variants that passed all checks.
        refused: Messages of those that did not.
    """

    task: str
    verdicts: list[Verdict] = field(default_factory=list)
    accepted: int = 0
    refused: list[str] = field(default_factory=list)

    def count(self, state: str) -> int:
        """Return how many mutants are killed, equivalent or survived."""
        return sum(verdict.state == state for verdict in self.verdicts)

    @property
    def share(self) -> float:
        """Killed mutants among those that are not equivalent; 1 if there are none."""
        graded = len(self.verdicts) - self.count("equivalent")
        return self.count("killed") / graded if graded else 1.0

    @property
    def held(self) -> bool:
        """Whether the goal is reached, and no style variant is refused."""
        return self.share >= GOAL and not self.refused

    def __str__(self) -> str:
        counts = "".join(f"{self.count(state):>12}" for state in ("killed", "equivalent", "survived"))
        named = sum(verdict.named for verdict in self.verdicts)
        variants = f"{self.accepted} of {self.accepted + len(self.refused)}"
        return f"{self.task:8}{len(self.verdicts):>8}{counts}{self.share:>8.0%}{named:>8}{variants:>12}"

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        rows = [
            {"cell": v.cell, "kind": v.mutant.kind, "line": v.mutant.line, "change": v.mutant.change}
            | {"state": v.state, "failed": list(v.failed), "named": v.named, "reason": v.reason}
            for v in self.verdicts
        ]
        return {
            "task": self.task,
            "score": self.share,
            "mutants": rows,
            "styles": {"accepted": self.accepted, "refused": self.refused},
        }


HEADER = (
    f"{'task':8}{'mutants':>8}{'killed':>12}{'equivalent':>12}{'survived':>12}{'score':>8}{'named':>8}{'styles':>12}"
)


class NotebookRun:
    """A kernel that runs a solved notebook, and stops where tasks are graded. Use it in a `with` statement.

    Args:
        notebook: A source notebook, or one with other right solutions.
        project: Its project.
        files: Copied into the notebook's folder, such as P1's model for P2.
        kernels: Starts its kernels; by default one without a sandbox.
    """

    def __init__(
        self,
        notebook: NotebookNode,
        project: Project,
        files: tuple[Path, ...] = (),
        kernels: NewKernel | None = None,
    ) -> None:
        self.project, self.files, self._factory = project, files, kernels
        self._cells = restore(notebook, project).cells
        self._points = grading_points(self._cells, project)
        self.ran: list[RestoredCell] = []
        self._files_before: dict[str, set[Path]] = {}

    def __enter__(self) -> NotebookRun:
        self._folder = tempfile.TemporaryDirectory(prefix="mlhood-", ignore_cleanup_errors=True)
        for file in self.files:
            (Path(self._folder.name) / file.name).write_bytes(file.read_bytes())
        self.kernels = self._start()
        return self

    def _start(self) -> NotebookKernels:
        return NotebookKernels(self.project.tasks, Path(self._folder.name), self._factory).__enter__()

    def __exit__(self, *exception: object) -> None:
        self.kernels.__exit__()
        self._folder.cleanup()

    @property
    def kernel(self) -> Kernel:
        """The kernel in which all of the notebook runs."""
        return self.kernels.notebook

    def restart(self) -> None:
        """Replace the kernel, whose objects a mutant may have damaged, and run everything so far again."""
        self.kernels.__exit__()
        self.kernels = self._start()
        for cell in self.ran:
            self._run(cell)

    def tasks(self, selected: Sequence[Task]) -> Iterator[TaskRun]:
        """Run the notebook, and yield each of these tasks where it would be graded."""
        remaining = [task.id for task in selected]
        for i, cell in enumerate(self._cells):
            if not remaining:
                return
            if cell.node.cell_type == "code" and cell.role not in FEEDBACK_ROLES:
                self._run(cell)
                self.ran.append(cell)
            for task in filter(None, map(self.project.task, self._points.get(i, []))):
                if task.id in remaining:
                    remaining.remove(task.id)
                    self.keep_history()
                    yield TaskRun(self, task)

    def solutions(self, task_id: str) -> dict[str, str]:
        """Return the sources of a task's solution cells by name, without their magics and comments."""
        cells = (cell for cell in self._cells if (cell.task, cell.role) == (task_id, "solution"))
        sources = {cell_name(cell.node): _parted(solution_source(cell.node))[1] for cell in cells}
        return {name: ast.unparse(ast.parse(source)) for name, source in sources.items()}

    def keep_history(self) -> None:
        """Remember the cells so far as the ones that `drop_history` leaves."""
        self.kept = {kernel: len(kernel._history) for kernel in self.kernels.all}

    def drop_history(self) -> None:
        """Do not run the cells since `keep_history` again when a kernel is replaced."""
        for kernel, count in self.kept.items():
            del kernel._history[count:]

    def remove_files_of(self, task_id: str) -> None:
        """Remove the files that the cells of a task have written: a mutant that writes none does not show another's."""
        for path in set(self.kernel.folder.iterdir()) - self._files_before[task_id]:
            if path.is_file():
                path.unlink()

    def _run(self, cell: RestoredCell) -> None:
        self._files_before.setdefault(cell.task, set(self.kernel.folder.iterdir()))
        source = solution_source(cell.node)
        outcome = self.kernels.run(new_code_cell(source), CELL_SECONDS)
        if outcome.error:
            raise GradingError("a cell of the solved notebook fails", where=cell_name(cell.node), got=outcome.error)


class TaskRun:
    """A task that is graded again and again, with other sources of its solution.

    Args:
        run: Has run the notebook up to the end of the task.
        task: Of its project.
    """

    def __init__(self, run: NotebookRun, task: Task) -> None:
        self.run, self.task = run, task
        # from the task's first given cell: it makes the table anew that a mutant may leave empty
        first = next(i for i, cell in enumerate(run.ran) if cell.task == task.id)
        self._own = run.ran[first:]
        cells = [cell.node for cell in self._own if self._solves(cell)]
        self._magics = {cell_name(cell): _parted(solution_source(cell))[0] for cell in cells}
        self.solution = run.solutions(task.id)

    def grade(self, sources: dict[str, str], seconds: float | None = None) -> TaskResult:
        """Run the task's cells with these sources, and grade them.

        Args:
            sources: By the name of the solution cell; a cell's magic in front is kept, and may be left out.
            seconds: Limit for each cell and each call; the task's own by default.
        """
        task = self.task if seconds is None else replace(self.task, seconds=min(seconds, self.task.seconds))
        kernels = self.run.kernels
        session = Session(kernels.notebook, kernels.notebook.folder, kernels.notebook.scratch)
        self.run.remove_files_of(task.id)
        try:
            for cell in self._own:
                solves = self._solves(cell)
                source = self._source(cell_name(cell.node), sources) if solves else solution_source(cell.node)
                session.lines.add(source, cell_name(cell.node))
                outcome = kernels.run(new_code_cell(source), task.seconds if solves else CELL_SECONDS)
                if outcome.error:
                    session.cell_errors.append(outcome.error)
            return grade_task(task, kernels.session(task, session), SEED)
        finally:
            self.run.drop_history()

    def _source(self, name: str, sources: dict[str, str]) -> str:
        """Return a cell's source with its magic, such as `%%writefile`, in front."""
        return self._magics[name] + _parted(sources[name])[1]

    def value(self, name: str) -> Any:
        """Return the value of a name of the notebook."""
        kernel = self.run.kernel
        return Submission(Session(kernel, kernel.folder, kernel.scratch)).value(name)

    def restart(self) -> None:
        """Replace the kernel, whose objects a mutant may have damaged."""
        self.run.restart()
        self.run.keep_history()

    def _solves(self, cell: RestoredCell) -> bool:
        return cell.role == "solution" and cell.task == self.task.id


def _parted(source: str) -> tuple[str, str]:
    """Return the line of a cell's magic, empty if it has none, and the Python below it."""
    if not source.startswith("%%"):
        return "", source
    magic, _, rest = source.partition("\n")
    return f"{magic}\n", rest


def score(run: TaskRun, *, sample: int = 0, report: Callable[[str], object] = lambda _: None) -> Score:
    """Grade the mutants and the style variants of a task's reference solution.

    Args:
        run: Of the task.
        sample: How many mutants, drawn the same each time; 0 grades all.
        report: Told of each survivor, and of each style variant that is refused.

    Raises:
        GradingError: The solution itself, without its comments, does not get full marks.
    """
    began = time.monotonic()
    _require_right(run)
    seconds = 5 + 4 * (time.monotonic() - began)  # a mutant that never ends is killed, too
    result, known = Score(run.task.id), equivalent_mutants(run.run.project)
    for style in styles(run.solution):
        graded = run.grade(style.sources)
        if lost := _failed(graded):
            result.refused.append(f"refused with {style.name}: {_reasons(lost)}")
            report(result.refused[-1])
        else:
            result.accepted += 1
    pool = [(name, mutant) for name, text in run.solution.items() for mutant in mutants(text)]
    if sample and sample < len(pool):
        pool = random.Random(SEED).sample(pool, sample)
    for start in range(0, len(pool), CONTROL):
        batch = pool[start : start + CONTROL]
        verdicts = [_verdict(run, name, mutant, seconds, known) for name, mutant in batch]
        if _failed(run.grade(run.solution)):  # one of them has damaged the kernel: each gets a new one
            verdicts = [_verdict(run, name, mutant, seconds, known, fresh=True) for name, mutant in batch]
            run.restart()
        applicable = [verdict for verdict in verdicts if verdict is not None]
        result.verdicts += applicable
        for verdict in applicable:
            if verdict.state == "survived":
                report(str(verdict))
    run.grade(run.solution)  # later cells need it
    return result


def _require_right(run: TaskRun) -> None:
    if failed := _failed(run.grade(run.solution)):
        what = "the solution itself is refused, so its mutants say nothing"
        raise GradingError(what, where=run.task.id, got=_reasons(failed))


def _verdict(
    run: TaskRun, name: str, mutant: Mutant, seconds: float, known: Sequence[EquivalentMutant], *, fresh: bool = False
) -> Verdict | None:
    """Return the verdict on a mutant; None if it is none, as its wrapper found nothing to change."""
    if fresh:
        run.restart()
    failed = _failed(run.grade(run.solution | {name: mutant.source}, seconds))
    if mutant.wrapped and not failed and not run.value(APPLIED):
        return None
    named = any(mutant.function and mutant.function in _message(check) for check in failed)
    reason = next((each.reason for each in known if each.matches(name, mutant)), "")
    return Verdict(name, mutant, tuple(check.name for check in failed), named, reason)


def _failed(result: TaskResult) -> list[CheckResult]:
    return [check for check in result.checks if check.status == "failed"]


def _message(check: CheckResult) -> str:
    return " ".join((check.name, check.title, check.what, *check.parts.values()))


def _reasons(lost: list[CheckResult] | str) -> str:
    return lost if isinstance(lost, str) else "; ".join(f"{check.name}: {_message(check)}" for check in lost)


def equivalent_mutants(project: Project, folder: Path = EQUIVALENT) -> list[EquivalentMutant]:
    """Return the equivalent mutants of a project's solutions.

    Raises:
        GradingError: An entry has no reason, or the file cannot be read.
    """
    path = folder / f"{project.id.lower()}.toml"
    if not path.exists():
        return []
    try:
        rows: Sequence[dict[str, str]] = tomllib.loads(path.read_text(encoding="utf-8")).get("equivalent", [])
        found = [EquivalentMutant.from_row(row) for row in rows]
    except (OSError, tomllib.TOMLDecodeError, re.error, KeyError, AttributeError) as error:
        raise GradingError("the list of equivalent mutants cannot be read", where=path, got=repr(error)) from None
    if without := [f"{each.cell}: {each.change.pattern}" for each in found if not each.reason]:
        raise GradingError("an equivalent mutant has no reason", where=path, got="; ".join(without))
    return found
