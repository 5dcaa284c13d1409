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
from collections.abc import Mapping
from pathlib import Path
from typing import Annotated

import pandas as pd
import typer

import mlhood
from mlhood.errors import GradingError
from mlhood.files.csv_cells import read_csv
from mlhood.files.terminal import echo
from mlhood.grading.execution.grade_notebook import empty_folder
from mlhood.grading.notebooks.notebook import course_folder, read
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


def term(
    out: Annotated[Path, typer.Option(help="Keep everything in this new or empty folder.")],
    variant: Annotated[str, typer.Option(metavar="NAME", help="Of the variant that the class gets.")] = "autumn-4f9c2e",
) -> None:
    """Try a whole term of P1 by the real commands, from the release of a variant to grading again, with ten students.

    Some have solved it, in three editors; others hand in half of it, a copy, an attack, or nothing. The exit code is 0
    if everything came out as it should, 1 if not.

    Example: python -m tests.tools.grading term --out ../term
    """
    from mlhood.grading.sandbox.bubblewrap import require

    require()
    tried = Term(variant, course_folder(Path.cwd()), empty_folder(out, option="--out"))
    tried.run()
    raise typer.Exit(0 if tried.held else 1)


class Term:
    """A term of the course in `root`, with everything that is handed in and made of it in `folder`."""

    project = "P1"

    def __init__(self, variant: str, root: Path, folder: Path) -> None:
        self.variant, self.root, self.folder = variant, root, folder
        self.version = ("--variant", variant, "--seed-file", folder / "student-seed.txt")
        self.students: list[Handed] = []
        self.held = True

    def run(self) -> None:
        """Try every step, and print how long it took.

        Raises:
            GradingError: A command failed.
        """
        self.release()
        self.hand_in()
        self.grade()
        self.mark()
        self.report()
        self.export()
        self.grade_again()

    def release(self) -> None:
        """Make the solved notebooks of the variant, and the version for the students."""
        project, variant = self.project, ("--variant", self.variant)
        solved, student = self.folder / "solved", self.folder / "student"
        self._call("run", project, *variant, "--out", solved, cwd=self.root)
        release = ("release", *variant, "--out", student, "--sources", solved)
        self._call(*release, cwd=self.root)

    def hand_in(self) -> None:
        """Let the ten students work."""
        name = f"{self.project}.ipynb"
        version, public = self.folder / "student" / name, self.root / name
        source_notebook = self.folder / "solved" / self.project / name
        ten = TenStudents(read(version), read(source_notebook), read(public)).all()
        as_classroom(ten, self.folder, self.project)
        as_canvas(ten, self.folder, self.project)
        (self.folder / "class.csv").write_text(roster_csv(ten, lambda one: one.student), encoding="utf-8")
        (self.folder / "canvas.csv").write_text(roster_csv(ten, lambda one: one.number), encoding="utf-8")
        (self.folder / "late.toml").write_text(LATE.replace("P1", self.project), encoding="utf-8")
        self.students = ten

    def grade(self) -> None:
        """Grade what GitHub Classroom has, and what Canvas has."""
        self._call(*self._grading(), accepts=MARKED)
        canvas = ("grade", "submissions.zip", "--out", "canvas", *self.version, "--roster", "canvas.csv")
        self._call(*canvas, accepts=MARKED)

    def mark(self) -> None:
        """Give points for the written answers."""
        self._call("marks", "graded", "--write", "to-mark.csv")
        table = pd.read_csv(self.folder / "to-mark.csv", dtype=str, keep_default_na=False)
        written = table["undecided"] == ""
        table.loc[written & (table["answer"] != ""), "points"] = ANSWERED_POINTS
        table.to_csv(self.folder / "to-mark.csv", index=False)
        self._call("marks", "graded", "--read", "to-mark.csv")

    def report(self) -> None:
        """Write feedback and the class report."""
        self._call("feedback", "graded", "--to", "feedback")
        self._call("class-report", "graded", "--to", "class.html")
        pages = list((self.folder / "feedback").glob("*/*/*.html"))
        self._expect("everybody has a page of feedback", len(pages) == len(self.students))
        report = (self.folder / "class.html").read_text(encoding="utf-8")
        text = re.sub(r"<[^>]*>", " ", report)
        classmates = bool(re.search(r"ada\s+fay\s+\d+%", text))
        self._expect("the report names who copied from a classmate", classmates)
        public = {student for student in ("ada", "gus") if re.search(rf"{student}\s+the public solution", text)}
        self._expect("the report names who copied the public solutions, and nobody else", public == {"gus"})

    def export(self) -> None:
        """Export the marks in every format, and compare those of both layouts."""
        for gradebook in ("graded", "canvas"):
            self._call("export", gradebook, "--format", "csv", "--to", f"{gradebook}.csv")
        exported = self.folder / "from-canvas.csv"
        column = f"{self.project} (77001)"
        rows = "".join(f'"{one.name}",{one.number},,,\n' for one in self.students)
        exported.write_text(f"Student,ID,SIS Login ID,Section,{column}\n{rows}", encoding="utf-8")
        fill = ("--fill", exported, "--to", "to-canvas.csv")
        self._call("export", "canvas", "--format", "canvas", *fill)
        for format_, to in (("nbgrader", "nbgrader.csv"), ("gradescope", "gradescope"), ("classroom", "classroom")):
            self._call("export", "graded", "--format", format_, "--to", to)
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
        self._call(*self._grading(), package=changed, accepts=MARKED)
        self._call("export", "graded", "--format", "csv", "--to", "again.csv")
        before, after = self._rows("graded"), self._rows("again")
        changes = {(row, column) for row in after for column in after[row] if after[row][column] != before[row][column]}
        tasks = {column.split()[0] for _, column in changes if TASK_COLUMN.fullmatch(column)}
        gained = all(float(after[row]["score"]) >= float(before[row]["score"]) for row in after)
        by_hand = not any(column == "bonus" for _, column in changes)
        text = "a change of one check changes that task alone, in favour of students, and no mark given by hand"
        self._expect(text, tasks == {f"{self.project}.1"} and gained and by_hand)

    def _grading(self) -> tuple[object, ...]:
        clones = f"{self.project.lower()}-submissions"
        roster = ("--roster", "class.csv", "--late", "late.toml")
        return ("grade", clones, "--out", "graded", *self.version, *roster)

    def _compare_layouts(self) -> None:
        numbers = {str(one.number): one.student for one in self.students}
        canvas = {numbers[number]: _automatic(row) for number, row in self._rows("canvas").items()}
        same = canvas == {student: _automatic(row) for student, row in self._rows("graded").items()}
        self._expect("GitHub Classroom's and Canvas's submissions get the same marks", same)

    def _expect_marks(self) -> None:
        rows = self._rows("graded")
        points = {student: sum(map(float, _automatic(row).values())) for student, row in rows.items()}
        solved = [points[one.student] for one in self.students if one.right]
        self._expect("who has solved all of it gets all points, in any editor", set(solved) == {FULL})
        torn = float(_automatic(rows["eve"])[f"{self.project}.1"])
        none = points["dan"] == points["hal"] == points["ivy"] == 0
        self._expect("an attack, an empty notebook and a file that is none get no points", none)
        self._expect("the public solutions get at most 30 points", points["gus"] <= 30)
        self._expect("a line half written costs its own task alone", points["joe"] == points["eve"] - torn > 0)
        late = float(rows["cyd"]["score"]) < float(rows["ada"]["score"])
        self._expect("a day late costs points", late)

    def _rows(self, name: str) -> dict[str, dict[str, str]]:
        header, *rows = read_csv(self.folder / f"{name}.csv")
        return {row[0]: dict(zip(header, row, strict=True)) for row in rows}

    def _expect(self, text: str, held: bool) -> None:
        echo(f"{text}: {'yes' if held else 'NO'}")
        self.held = self.held and held

    def _call(
        self,
        *arguments: object,
        cwd: Path | None = None,
        package: Path = PACKAGE.parent,
        accepts: frozenset[int] = frozenset({0}),
    ) -> None:
        """Run a command, by default in the term's folder, and print how long it took."""
        words = [str(argument) for argument in arguments]
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
        echo(f"{time.perf_counter() - began:.0f} s: {command}")
        if done.returncode not in accepts:
            raise GradingError(
                f"`{command}` failed", got="\n".join((done.stdout + done.stderr).splitlines()[-LAST_LINES:])
            )


def _automatic(row: Mapping[str, str]) -> dict[str, str]:
    """Return the points of tasks in a row of the CSV export, by task."""
    return {match[1]: row[column] or "0" for column in row if (match := TASK_COLUMN.fullmatch(column))}
