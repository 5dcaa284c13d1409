"""What is sliced, and slicings that there are."""

from mlhood.dataflow.slicing.problem import Problem, possible


def test_more_tiles_than_there_are_become_all_there_are():
    problem = Problem(24, 8, (3, 3), (6, 8), 8, 4)
    assert possible(problem, "IS", (100, 0, 3)).tiles == (8, 1, 3)
    assert possible(problem, "WS", (4, 9, 9)).tiles == (4, 6, 6)
