"""The functions of the notebooks' solutions, as the grader runs them."""

from __future__ import annotations

import functools

import numpy as np
import pytest

from mlhood.errors import GradingError
from mlhood.grading.checks.compared import SolutionComparison
from mlhood.grading.projects import PROJECTS
from mlhood.grading.projects.collect import variant
from mlhood.grading.projects.solution import SEEDS, Recorded, Solution
from mlhood.grading.student.variant_version import recorded_results
from mlhood.kernels import CONV2D

COMPARED = [
    (task, check)
    for project in PROJECTS.values()
    for task in project.tasks
    for check in task.checks
    if isinstance(check.function, SolutionComparison)
]


def test_only_what_a_function_needs_is_executed():
    names = Solution("P3", PROJECTS["P3"].parameters).names({"conv_blas"})
    assert {"conv_blas", "im2col", "output_size", "pad", "np"} <= set(names)
    assert {"torch", "resnet", "gemm_packed", "conv_cost"}.isdisjoint(names)


def test_functions_run_as_plain_python_unless_compiled():
    solution = Solution("P3", PROJECTS["P3"].parameters)
    assert hasattr(solution.compiled("pad"), "py_func")
    x, w, bias = np.ones((1, 2, 5, 4), np.float32), np.ones((3, 2, 3, 2), np.float32), np.ones(3, np.float32)
    expected = CONV2D["direct"](x, w, bias, 1, 1)
    np.testing.assert_allclose(solution("conv_direct", x, w, bias, 1, 1), expected, rtol=1e-5)


def test_a_variant_has_its_own_solutions():
    values = {**PROJECTS["P3"].parameters, "traffic": "write_allocate"}
    cost = Solution("P3", values)("conv_cost", (1, 2, 5, 5), (3, 2, 3, 3), (1, 3, 3, 3))
    assert cost["bytes"] == 4 * (2 * 25 + 3 * 2 * 9 + 2 * 3 * 9)


def test_a_name_that_no_solution_defines():
    with pytest.raises(GradingError, match="no solution defines this name"):
        Solution("P3", PROJECTS["P3"].parameters)("absent")


@functools.cache
def recorded_of(project_id: str, variant_name: str) -> Recorded:
    return Recorded(recorded_results(variant(PROJECTS[project_id], variant_name)))


@pytest.mark.parametrize("variant_name", ["", pytest.param("a1", marks=pytest.mark.exhaustive)])
def test_results_are_recorded_for_every_seed_of_every_comparison(variant_name):
    for task, check in COMPARED:
        recorded = recorded_of(task.id.partition(".")[0], variant_name)
        assert all(recorded.of(f"{task.id} {check.name}", seed) for seed in SEEDS), f"{task.id} {check.name}"


def test_the_recorded_results_are_those_of_the_solution():
    recorded = recorded_of("P3", "")
    assert recorded.seed(SEEDS[1] + len(SEEDS)) == SEEDS[1]
    replayed = recorded.of("P3.11 without_a_rest_there_is_no_limit", SEEDS[0])
    assert replayed
    assert replayed("best_possible", 1.0, {"a": 1.0}) == float("inf")
    assert replayed("best_possible", 2.0, {"a": 1.0}) == pytest.approx(2.0)
