"""`mlhood grade` as a program, with another marker in place of the course's: `fake_grade.py MARKER grade ...`."""

from __future__ import annotations

import sys

from mlhood.cli import main
from mlhood.grading.batch import grade_class

MARKER = sys.argv.pop(1)
ORIGINAL = grade_class.Wishes.__init__


def with_marker(self, *arguments, **more):
    ORIGINAL(self, *arguments, **{**more, "marker": MARKER})


if __name__ == "__main__":
    grade_class.Wishes.__init__ = with_marker
    main()
