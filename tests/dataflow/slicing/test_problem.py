"""Slicings clamped to a problem."""

from mlhood.dataflow.slicing.problem import Problem, possible


def test_sizes_are_clamped():
    problem = Problem(24, 8, (3, 3), (6, 8), 8, 4)
    assert possible(problem, "IS", (100, 0, 3)).tiles == (8, 1, 3)
    assert possible(problem, "WS", (4, 9, 9)).tiles == (4, 6, 6)
