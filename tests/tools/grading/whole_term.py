"""A whole term by the real commands: a variant released, ten students graded, marked, reported, exported, graded again.

The class hands in through GitHub Classroom, and once more through Canvas, so that both have to give the same marks.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import subprocess
import sys
import time
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pandas as pd

import mlhood
from mlhood.errors import GradingError
from mlhood.files.csv_cells import read_csv
from mlhood.grading.notebooks.notebook import read
from tests.tools.grading.calls import Log, verdict
from tests.tools.grading.ten_students import Handed, TenStudents, as_canvas, as_classroom, roster_csv

MLHOOD = (sys.executable, "-P", "-c", "from mlhood.cli import main; main()")
PACKAGE = Path(mlhood.__file__).parent
LATE = """
[P1]
due = 2026-10-12T23:59:00
penalty_per_day = 10

[P1.submitted]
cyd = 2026-10-13T20:00:00
"""
# between two gradings, this check of P1.1 is made to accept everything
CHANGED_MODULE = Path("grading/projects/p1/network.py")
CHANGED_CHECK = re.compile(r'(?m)^(def convolutions_have_lenets_geometry\(.*\n    """.*\n)')
TASK_COLUMN = re.compile(r"(P\d\.\d+) .*\(\d+\)")
FULL = 100
MARKED = frozenset({0, 1})  # exit codes of a graded class: 1 if something needs a decision
ANSWERED_POINTS = "4"
LAST_LINES = 30


@dataclass(frozen=True)
class Step:
    """A step of the term: what it does, its command, how long it took, and the last lines that it printed."""

    title: str
    command: str
    seconds: float
    lines: tuple[str, ...]


@dataclass(frozen=True)
class Promise:
    """Something that has to be so, and whether it is."""

    text: str
    held: bool


@dataclass
class Term:
    """The outcome: the steps so far, what was promised, and the class."""

    variant: str
    project: str = "P1"
    students: Sequence[Handed] = ()
    steps: list[Step] = field(default_factory=list)
    promises: list[Promise] = field(default_factory=list)
    marks: dict[str, str] = field(default_factory=dict)

    @property
    def held(self) -> bool:
        """Whether everything is as promised."""
        return bool(self.promises) and all(promise.held for promise in self.promises)

    def text(self) -> str:
        """Return the outcome as text."""
        if not self.steps:
            return "nothing was tried"
        steps = pd.DataFrame([{"step": s.title, "seconds": f"{s.seconds:.0f}"} for s in self.steps])
        lines = [steps.to_string(index=False, justify="left"), ""]
        if self.marks:
            rows = [{"student": s.student, "did": s.did, "marks": self.marks.get(s.student, "")} for s in self.students]
            lines += [pd.DataFrame(rows).to_string(index=False, justify="left"), ""]
        return "\n".join([*lines, *(verdict(promise.text, promise.held) for promise in self.promises)])

    def as_dict(self) -> dict[str, Any]:
        """Return the outcome as plain data."""
        students = [{"student": s.student, "did": s.did, "marks": self.marks.get(s.student, "")} for s in self.students]
        return {
            "variant": self.variant,
            "steps": [asdict(step) for step in self.steps],
            "students": students,
            "promises": [asdict(promise) for promise in self.promises],
            "held": self.held,
        }


def try_term(term: Term, root: Path, folder: Path, log: Log) -> None:
    """Try a term of the course in `root`; `term` is filled with the outcome, also after Ctrl-C.

    Args:
        folder: Where everything is written; it is empty before.

    Raises:
        GradingError: A command failed.
    """
    run = _TermRun(term, root, folder, log)
    run.release()
    run.hand_in()
    run.grade()
    run.mark()
    run.report()
    run.export()
    run.grade_again()


class _TermRun:
    """The steps, one method each, in order."""

    def __init__(self, term: Term, root: Path, folder: Path, log: Log) -> None:
        self.term, self.root, self.folder, self.log = term, root, folder, log
        self.edition = ("--variant", term.variant, "--seed-file", folder / "student-seed.txt")

    def release(self) -> None:
        """Make the solved masters of the variant, and the edition for the students."""
        project, variant = self.term.project, ("--variant", self.term.variant)
        solved, student = self.folder / "solved", self.folder / "student"
        self._call("make and execute the solved masters", "run", project, *variant, "--out", solved, cwd=self.root)
        release = ("release", *variant, "--out", student, "--masters", solved)
        self._call("release the edition", *release, cwd=self.root)

    def hand_in(self) -> None:
        """Let the ten students work."""
        name = f"{self.term.project}.ipynb"
        edition, public = self.folder / "student" / name, self.root / name
        master = self.folder / "solved" / self.term.project / name
        ten = TenStudents(read(edition), read(master), read(public), public).all()
        as_classroom(ten, self.folder, self.term.project)
        as_canvas(ten, self.folder, self.term.project)
        (self.folder / "class.csv").write_text(roster_csv(ten, lambda one: one.student), encoding="utf-8")
        (self.folder / "canvas.csv").write_text(roster_csv(ten, lambda one: one.number), encoding="utf-8")
        (self.folder / "late.toml").write_text(LATE.replace("P1", self.term.project), encoding="utf-8")
        self.term.students = ten

    def grade(self) -> None:
        """Grade what GitHub Classroom has, and what Canvas has."""
        self._call("grade the clones of GitHub Classroom", *self._grading(), accepts=MARKED)
        canvas = ("grade", "submissions.zip", "--out", "canvas", *self.edition, "--roster", "canvas.csv")
        self._call("grade the download of Canvas", *canvas, accepts=MARKED)

    def mark(self) -> None:
        """Give points for the written answers."""
        self._call("list what is to be marked", "marks", "graded", "--write", "to-mark.csv")
        table = pd.read_csv(self.folder / "to-mark.csv", dtype=str, keep_default_na=False)
        written = table["undecided"] == ""
        table.loc[written & (table["answer"] != ""), "points"] = ANSWERED_POINTS
        table.to_csv(self.folder / "to-mark.csv", index=False)
        self._call("enter the points (or by the page: --open)", "marks", "graded", "--read", "to-mark.csv")

    def report(self) -> None:
        """Write feedback and the class report."""
        self._call("write the feedback pages", "feedback", "graded", "--to", "feedback")
        self._call("write the class report", "class-report", "graded", "--to", "class.html")
        pages = list((self.folder / "feedback").glob("*/*/*.html"))
        self._promise("everybody has a page of feedback", len(pages) == len(self.term.students))
        report = (self.folder / "class.html").read_text(encoding="utf-8")
        text = re.sub(r"<[^>]*>", " ", report)
        classmates = bool(re.search(r"ada\s+fay\s+\d+%", text))
        self._promise("the report names who copied from a classmate", classmates)
        public = {student for student in ("ada", "gus") if re.search(rf"{student}\s+the public solution", text)}
        self._promise("the report names who copied the public solutions, and nobody else", public == {"gus"})

    def export(self) -> None:
        """Export the marks in every format, and compare those of both layouts."""
        for gradebook in ("graded", "canvas"):
            self._call(
                f"export marks of {gradebook}", "export", gradebook, "--format", "csv", "--to", f"{gradebook}.csv"
            )
        exported = self.folder / "from-canvas.csv"
        column = f"{self.term.project} (77001)"
        rows = "".join(f'"{one.name}",{one.number},,,\n' for one in self.term.students)
        exported.write_text(f"Student,ID,SIS Login ID,Section,{column}\n{rows}", encoding="utf-8")
        fill = ("--fill", exported, "--to", "to-canvas.csv")
        self._call("export into Canvas's gradebook", "export", "canvas", "--format", "canvas", *fill)
        for format_, to in (("nbgrader", "nbgrader.csv"), ("gradescope", "gradescope"), ("classroom", "classroom")):
            self._call(f"export for {format_}", "export", "graded", "--format", format_, "--to", to)
        self.term.marks = {student: row["score"] for student, row in self._rows("graded").items()}
        self._compare_layouts()
        self._expect_marks()

    def grade_again(self) -> None:
        """Grade once more after a check was changed: whoever it has cost points gets them, all others keep theirs."""
        changed = self.folder / "changed"
        shutil.copytree(PACKAGE, changed / "mlhood", ignore=shutil.ignore_patterns("__pycache__"))
        module = changed / "mlhood" / CHANGED_MODULE
        text, found = CHANGED_CHECK.subn(r"\1    return\n", module.read_text(encoding="utf-8"))
        if not found:
            raise GradingError("the check that is to be changed is not there", where=module)
        module.write_text(text, encoding="utf-8")
        title = "grade again after a change of one check"
        self._call(title, *self._grading(), package=changed, accepts=MARKED)
        self._call("export the marks again", "export", "graded", "--format", "csv", "--to", "again.csv")
        before, after = self._rows("graded"), self._rows("again")
        changes = {(row, column) for row in after for column in after[row] if after[row][column] != before[row][column]}
        tasks = {column.split()[0] for _, column in changes if TASK_COLUMN.fullmatch(column)}
        gained = all(float(after[row]["score"]) >= float(before[row]["score"]) for row in after)
        by_hand = not any(column == "bonus" for _, column in changes)
        text = "a change of one check changes that task alone, in favour of students, and no mark given by hand"
        self._promise(text, tasks == {f"{self.term.project}.1"} and gained and by_hand)

    def _grading(self) -> tuple[object, ...]:
        clones = f"{self.term.project.lower()}-submissions"
        roster = ("--roster", "class.csv", "--late", "late.toml")
        return ("grade", clones, "--out", "graded", *self.edition, *roster)

    def _compare_layouts(self) -> None:
        numbers = {str(one.number): one.student for one in self.term.students}
        canvas = {numbers[number]: _automatic(row) for number, row in self._rows("canvas").items()}
        same = canvas == {student: _automatic(row) for student, row in self._rows("graded").items()}
        self._promise("GitHub Classroom's and Canvas's submissions get the same marks", same)

    def _expect_marks(self) -> None:
        rows = self._rows("graded")
        points = {student: sum(map(float, _automatic(row).values())) for student, row in rows.items()}
        solved = [points[one.student] for one in self.term.students if one.right]
        self._promise("who has solved all of it gets all points, in any editor", set(solved) == {FULL})
        torn = float(_automatic(rows["eve"])[f"{self.term.project}.1"])
        none = points["dan"] == points["hal"] == points["ivy"] == 0
        self._promise("an attack, an empty notebook and a file that is none get no points", none)
        self._promise("the public solutions get at most 30 points", points["gus"] <= 30)
        self._promise("a line half written costs its own task alone", points["joe"] == points["eve"] - torn > 0)
        late = float(rows["cyd"]["score"]) < float(rows["ada"]["score"])
        self._promise("a day late costs points", late)

    def _rows(self, name: str) -> dict[str, dict[str, str]]:
        header, *rows = read_csv(self.folder / f"{name}.csv")
        return {row[0]: dict(zip(header, row, strict=True)) for row in rows}

    def _promise(self, text: str, held: bool) -> None:
        self.term.promises.append(Promise(text, held))

    def _call(
        self,
        title: str,
        *arguments: object,
        cwd: Path | None = None,
        package: Path = PACKAGE.parent,
        accepts: frozenset[int] = frozenset({0}),
    ) -> None:
        """Run a command, by default in the term's folder, and note how long it took and what it printed."""
        words = [str(argument) for argument in arguments]
        self.log(f"{title}: mlhood {words[0]}")
        began = time.perf_counter()
        done = subprocess.run(
            [*MLHOOD, *words],
            cwd=cwd or self.folder,
            env=os.environ | {"PYTHONPATH": str(package)},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            text=True,
            encoding="utf-8",
            errors="replace",
            check=False,
        )
        command = shlex.join(["mlhood", *words]).replace(f"{self.folder}/", "")
        lines = [line for line in (done.stdout if done.stdout.strip() else done.stderr).splitlines() if line.strip()]
        self.term.steps.append(Step(title, command, time.perf_counter() - began, tuple(lines[-LAST_LINES:])))
        if done.returncode not in accepts:
            raise GradingError(
                f"`{command}` failed", got="\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
            )


def _automatic(row: Mapping[str, str]) -> dict[str, str]:
    """Return the points of tasks in a row of the CSV export, by task."""
    return {match[1]: row[column] or "0" for column in row if (match := TASK_COLUMN.fullmatch(column))}
