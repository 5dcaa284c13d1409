"""Print a gallery of wrong solutions as the table that `python -m tests.tools.grading ... --wrong FILE` reads.

python tests/grading/projects/wrong_table.py P1 > wrong.json
"""

from __future__ import annotations

import json
import sys
from dataclasses import asdict

from tests.grading.projects import p1_wrong, p2_wrong, p3_wrong, p4_wrong, p5_wrong

GALLERIES = {
    "P1": p1_wrong.WRONG,
    "P2": p2_wrong.WRONG,
    "P3": p3_wrong.WRONG,
    "P4": p4_wrong.WRONG,
    "P5": p5_wrong.WRONG,
}


def rows(project: str) -> list[dict]:
    """Return the entries of a project's gallery as plain data."""
    return [asdict(entry) for entry in GALLERIES[project]]


if __name__ == "__main__":
    print(json.dumps(rows(sys.argv[1] if len(sys.argv) > 1 else "P1"), indent=1))
