"""The roster of a class: who is to submit, so that who did not is named, from a CSV file.

student,name,email
ada,Ada Lovelace,ada@example.org

`student` is the id that submissions have in their layout. Where a layout has other ids, as Canvas, or only names, as
Moodle, a submission belongs to the student of the same name, if there is exactly one.
"""

from __future__ import annotations

import json
import re
from collections import Counter
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from mlhood.errors import GradingError
from mlhood.files.csv_cells import join_errors, read_csv


@dataclass(frozen=True)
class Student:
    """A row of the roster."""

    student: str
    name: str = ""
    email: str = ""


class Roster:
    """The students of a class, found by id or by name."""

    def __init__(self, students: Iterable[Student] = ()) -> None:
        self.students = tuple(students)
        self._by_id = {student.student: student for student in self.students}
        names = Counter(sorted_words(student.name) for student in self.students if student.name)
        unique = (student for student in self.students if names[sorted_words(student.name)] == 1)
        self._by_name = {sorted_words(student.name): student for student in unique}

    def find(self, student: str, name: str = "") -> Student | None:
        """Return the row of a student, or None if there is none, or no single one."""
        return self._by_id.get(student) or self._by_name.get(sorted_words(name or student))

    def to_text(self) -> str:
        """Return the roster as it is stored in the gradebook."""
        return json.dumps([asdict(student) for student in self.students])

    @classmethod
    def from_text(cls, text: str) -> Roster:
        """Return the roster that `to_text` wrote."""
        return cls(Student(**row) for row in json.loads(text))


def sorted_words(name: str) -> str:
    """Return a name regardless of the order of its words: `Lovelace, Ada` equals `Ada Lovelace`."""
    return " ".join(sorted(re.findall(r"\w+", name.lower())))


COLUMNS = ("student", "name", "email")


def read_roster(path: Path) -> Roster:
    """Read a roster.

    Raises:
        GradingError: The file cannot be read, has no column `student`, or a student has no id or several rows.
    """
    rows = read_csv(path)
    header = [title.strip().lower() for title in rows[0]] if rows else []
    if "student" not in header:
        raise GradingError(
            "this is not a roster",
            where=path,
            expected="a first row with the column student, and if you like name and email",
            got=", ".join(rows[0][:8]) if rows else "an empty file",
            todo="write the titles of the columns into the first row",
        )
    students: dict[str, Student] = {}
    errors: list[str] = []
    for line, row in enumerate(rows[1:], start=2):
        if not any(cell.strip() for cell in row):
            continue
        cells = dict(zip(header, (cell.strip() for cell in row), strict=False))
        student = Student(*(cells.get(column, "") for column in COLUMNS))
        if not student.student:
            errors.append(f"row {line} has no student")
        elif students.setdefault(student.student, student) is not student:
            errors.append(f"row {line}: {student.student} has another row")
    if errors:
        raise GradingError(
            "the roster has errors",
            where=path,
            expected="one row for each student",
            got=join_errors(errors),
            todo="correct these rows",
        )
    return Roster(students.values())
