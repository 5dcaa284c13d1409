"""Which variant of the course a submission is marked as: that of its version, if this course has released it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlhood.grading.gradebook.roster import Roster
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.variants.parameter import version_name
from mlhood.grading.variants.seed import UNSIGNED


@dataclass(frozen=True)
class GivenVersions:
    """What the students were given.

    Args:
        variant_name: Of the variant; empty if it is the course as it is published.
        roster: With the group of each student, where each group has its own version.
    """

    variant_name: str = ""
    roster: Roster = field(default_factory=Roster)

    def given_to(self, file: SubmittedFile) -> str:
        """Return the name of the variant that a student was given; empty for the published course."""
        student = self.roster.find(file.student, file.name)
        return version_name(self.variant_name, student.group if student else "") if self.variant_name else ""

    def marked_as(self, file: SubmittedFile, found: str) -> tuple[str, str]:
        """Return the variant that a submission is marked as, and a note if it is not of the version of its student.

        A version of another group counts as what it is, one of another term does not.

        Args:
            file: The submission.
            found: The name signed in it; `UNSIGNED` if the signature is another course's, empty if there is none.
        """
        given = self.given_to(file)
        if found == given or (found and found != UNSIGNED and not self.variant_name):
            return found, ""
        if found in self._words():
            return found, f"it was made for the version {found} and is marked as such; the student was given {given}"
        made = "has no version" if not found else f"was made for the version {found}, which is not of this class"
        made = "was not signed with the seed of this course" if found == UNSIGNED else made
        return given, f"it {made}, so it is marked as {f'the version {given}' if given else 'the published course'}"

    def _words(self) -> set[str]:
        """Return the names of the variants of this class."""
        groups = {student.group for student in self.roster.students}
        return {version_name(self.variant_name, group) for group in groups | {""}} if self.variant_name else set()
