"""What a student has submitted, as the store of a batch holds it."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime
from pathlib import Path


@dataclass(frozen=True)
class SubmittedFile:
    """One notebook of one student, or the reason why there is none to grade.

    Args:
        student: The student's id in the layout.
        name: Full name where the layout has it, else empty.
        assignment: Such as `P1`; empty where neither a folder nor the file's name contains it.
        source: Where it was found, for people to read.
        path: The copy to grade: named after its content, so that nothing in its name is the student's.
        sha256: Hash of the content; empty if there is nothing to grade.
        submitted: Time of submission, with its zone, where the layout has it.
        late: Whether the layout marks it as late, without a time.
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
        """What a later submission of the same student replaces: the same assignment, else the same file."""
        return self.assignment or self.source
