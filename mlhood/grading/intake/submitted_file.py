"""What a student has handed in, as it lies in the store of a batch."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class Handed:
    """One notebook of one student, or the reason why there is none to grade.

    Args:
        student: Id by which the layout knows the student.
        name: Full name where the layout tells it, else empty.
        assignment: What it was handed in for, such as `P1`; empty where neither a folder nor the file's name tells.
        source: Where it was found, for people to read.
        path: The copy to grade: named after its content, so that nothing in its name is the student's.
        sha256: Hash of the content; empty if there is nothing to grade.
        submitted: When it was handed in, with its zone, where the layout tells it.
        late: Whether the layout says that it came late, without saying when.
        problem: Why it cannot be graded; empty if it can.
    """

    student: str
    name: str = ""
    assignment: str = ""
    source: str = ""
    path: Path | None = None
    sha256: str = ""
    submitted: datetime | None = None
    late: bool = False
    problem: str = ""

    @property
    def slot(self) -> str:
        """What a later submission of the same student replaces: that of the same assignment, else of the same file."""
        return self.assignment or self.source
