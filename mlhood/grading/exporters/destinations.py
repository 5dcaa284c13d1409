"""Where each format of `mlhood export` is imported, as the documentation of that system says; said after every export.

Sources: Moodle's "Grade import"; Canvas's "Gradebook Action Menu"; nbgrader's `nbgrader export`;
Gradescope's "Autograder Specifications"; GitHub's "Use autograding".
"""

from __future__ import annotations

DESTINATIONS = {
    "csv": (
        "open it in a spreadsheet, or import it in Moodle, a project at a time (--project P1): Grades > Import > CSV "
        "file; map `email` (of --roster) to the email address, and `score` to the assignment, whose grades can then no "
        "longer be edited in the assignment itself"
    ),
    "nbgrader": (
        "the file is what `nbgrader export` writes, for tools that read that; nbgrader itself has no command that "
        "imports marks into its own gradebook"
    ),
    "canvas": "in Canvas: Grades > Import; it shows what will change before it stores the scores",
    "gradescope": (
        "Gradescope has no page that imports these files: they are what an autograder leaves in "
        "/autograder/results/results.json. To have Gradescope grade, use `mlhood release --gradescope`"
    ),
    "classroom": (
        "GitHub Classroom has no page that imports marks: the files are what its graders pass to its reporter, within "
        "the workflow that `mlhood release` adds to the student version"
    ),
}


def next_step(format: str) -> str:
    """Return what to do with the files of a format."""
    return f"where it goes: {DESTINATIONS[format]}"
