"""What a mistyped name may have meant."""

from __future__ import annotations

import pytest

from mlhood.errors import nearest

TASKS = [f"P{project}.{task}" for project in range(1, 6) for task in range(1, 10)]


@pytest.mark.parametrize(
    ("name", "known", "expected"),
    [
        ("p3.2", TASKS, "did you mean P3.2"),
        ("P2.44", TASKS, "did you mean P2.4"),
        ("nbgradr", ["csv", "nbgrader", "canvas"], "did you mean nbgrader?"),
        ("optimised", ["hir", "optimized", "lowered"], "did you mean optimized?"),
        ("thesis", TASKS, None),
        (3, ["3"], "did you mean 3?"),
        ("x", [], None),
    ],
)
def test_the_nearest_name(name, known, expected):
    hint = nearest(name, known)
    assert hint is None if expected is None else hint is not None and hint.startswith(expected)
