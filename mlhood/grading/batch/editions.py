"""Which variant of the course a submission is marked as: that of its edition, if this course has released it."""

from __future__ import annotations

from dataclasses import dataclass, field

from mlhood.grading.gradebook.roster import Roster
from mlhood.grading.intake.collect import SubmittedFile
from mlhood.grading.variants.draw import edition_word
from mlhood.grading.variants.seal import UNSIGNED


@dataclass(frozen=True)
class Editions:
    """What the students were given.

    Args:
        word: Of the variant; empty if it is the course as it is published.
        roster: With the group of each student, where each group has its own edition.
    """

    word: str = ""
    roster: Roster = field(default_factory=Roster)

    def given_to(self, file: SubmittedFile) -> str:
        """Return the word of the edition that a student was given; empty for the published course."""
        student = self.roster.find(file.student, file.name)
        return edition_word(self.word, student.group if student else "") if self.word else ""

    def marked_as(self, file: SubmittedFile, found: str) -> tuple[str, str]:
        """Return the word that a submission is marked as, and a note if it is not of the edition of its student.

        An edition of another group counts as what it is, one of another term does not.

        Args:
            file: The submission.
            found: The word sealed in it; `UNSIGNED` if the seal is another course's, empty if there is none.
        """
        given = self.given_to(file)
        if found == given or (found and found != UNSIGNED and not self.word):
            return found, ""
        if found in self._words():
            return found, f"it was made for the edition {found} and is marked as such; the student was given {given}"
        made = "is of no edition" if not found else f"was made for the edition {found}, which is not of this class"
        made = "is of an edition that was not sealed with the seed of this course" if found == UNSIGNED else made
        return given, f"it {made}, so it is marked as {f'the edition {given}' if given else 'the published course'}"

    def _words(self) -> set[str]:
        """Return the words of the editions of this class."""
        groups = {student.group for student in self.roster.students}
        return {edition_word(self.word, group) for group in groups | {""}} if self.word else set()
