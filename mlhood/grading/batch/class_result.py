"""What grading a class has come to, in words: problems, marks, and what to do next."""

from __future__ import annotations

import shlex
import statistics
from collections import Counter
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from mlhood.files.csv_cells import round_points
from mlhood.grading.gradebook.records import MISSING, Record
from mlhood.grading.gradebook.roster import Roster
from mlhood.grading.intake.collect import SubmittedFile

MAX_ROWS = 40  # students whose marks are printed; of more there are figures


@dataclass(frozen=True)
class ClassResult:
    """The outcome of a call: the gradebook, all results, submissions without a project, and files that do not count."""

    gradebook: Path
    layouts: tuple[str, ...]
    records: tuple[Record, ...]
    unassigned: tuple[SubmittedFile, ...]
    extras: tuple[SubmittedFile, ...] = ()
    roster: Roster = field(default_factory=Roster)

    @property
    def submitted(self) -> list[Record]:
        """The results of those who have submitted something."""
        return [record for record in self.records if record.status != MISSING]

    @property
    def complete(self) -> bool:
        """Whether every submission was graded and none was at fault."""
        return not self.unassigned and all(record.status == "done" and not record.reason for record in self.submitted)

    def text(self) -> str:
        """Return a summary for the instructor: every problem, the marks, counts, and what to do next."""
        lines = [f"note: {file.source}: {file.problem}" for file in self.extras]
        lines += [f"{file.source}: {file.problem}" for file in self.unassigned]
        lines += [
            f"{record.student} {record.project.id} ({record.submission.source}): {record.status}: {record.reason}"
            for record in self.submitted
            if record.status != "done" or record.reason
        ]
        lines += self._undecided()
        lines += self._compared_with_roster()
        lines += [
            f"{project}: {count} submissions: {note}; enter times in [{project}.submitted] of the late policy"
            for (project, note), count in sorted(Counter(self._late_notes()).items())
        ]
        lines += ["", *self._table(), ""] if self.records else []
        done = sum(record.status == "done" for record in self.records)
        lines.append(f"layout: {', '.join(dict.fromkeys(self.layouts))}")
        lines.append(f"graded: {done} of {len(self.submitted) + len(self.unassigned)}; gradebook: {self.gradebook}")
        lines += self._next_commands(done)
        return "\n".join("".join(c if c.isprintable() else "?" for c in line) for line in lines)

    def _table(self) -> list[str]:
        """Return the marks of a small class, those of a large one in figures."""
        projects = list(dict.fromkeys(record.project.id for record in self.records))
        by_student: dict[str, dict[str, object]] = {}
        for record in self.records:
            graded = record.status == "done"
            mark = _mark(record) if graded else record.status
            by_student.setdefault(record.student, {})[record.project.id] = mark
        if len(by_student) <= MAX_ROWS:
            rows = [
                [student, *(marks.get(project, "") for project in projects)] for student, marks in by_student.items()
            ]
            return aligned([["student", *projects], *rows])
        rows = [[project, *self._figures(project)] for project in projects]
        header = ["", "graded", "mean", "median", "lowest", "highest"]
        undecided = Counter(record.project.id for record in self.records if record.undecided)
        if not undecided:
            return aligned([header, *rows])
        return aligned([[*header, "not final"], *([*row, undecided[row[0]]] for row in rows)])

    def _figures(self, project: str) -> list[object]:
        scores = [record.score for record in self.records if (record.project.id, record.status) == (project, "done")]
        if not scores:
            return [0, "", "", "", ""]
        figures = (statistics.mean(scores), statistics.median(scores), min(scores), max(scores))
        return [len(scores), *map(round_points, figures)]

    def _next_commands(self, done: int) -> Iterator[str]:
        folder = shlex.quote(str(self.gradebook.parent))
        commands = [f"mlhood marks {folder} --open"] if any(record.undecided for record in self.records) else []
        if done:
            commands.append(f"mlhood export {folder} --format csv --to marks.csv")
            commands.append(f"mlhood class-report {folder} --to class.html")
            commands.append(f"mlhood feedback {folder} --to feedback")
        return (f"{'next:' if i == 0 else '     '} {command}" for i, command in enumerate(commands))

    def _undecided(self) -> Iterator[str]:
        """Yield the tasks on which the instructor has to decide."""
        for record in self.records:
            for task in record.undecided:
                points = f"{round_points(task.earned)} of {round_points(task.points)} so far"
                yield f"{record.student} {task.id}: undecided ({points}): {task.why_undecided}"

    def _compared_with_roster(self) -> Iterator[str]:
        """Yield who has submitted nothing, by project, and who is not in the roster."""
        missing: dict[str, list[str]] = {}
        for record in self.records:
            if record.status == MISSING:
                missing.setdefault(record.project.id, []).append(record.student)
        for project, students in missing.items():
            yield f"{project}: nothing was submitted by {', '.join(students)}"
        if self.roster.students:
            known = {(r.student, r.submission.name) for r in self.submitted}
            strangers = sorted(student for student, name in known if self.roster.find(student, name) is None)
            if strangers:
                yield f"not in the roster: {', '.join(strangers)}"

    def _late_notes(self) -> Iterator[tuple[str, str]]:
        """Yield the project and the assumption for each submission whose time is not known."""
        return ((record.project.id, record.late.note) for record in self.records if record.late.note)


def _mark(record: Record) -> object:
    """Return the points that count; with undecided tasks they are not final."""
    points = round_points(record.score)
    return f"{points} ({len(record.undecided)} undecided)" if record.undecided else points


def aligned(rows: Sequence[Sequence[object]]) -> list[str]:
    """Return the lines of a table: the first column to the left, the others to the right."""
    cells = [[str(cell) for cell in row] for row in rows]
    widths = [max(map(len, column)) for column in zip(*cells, strict=True)]
    lines = ("  ".join([row[0].ljust(widths[0]), *map(str.rjust, row[1:], widths[1:])]) for row in cells)
    return [line.rstrip() for line in lines]
