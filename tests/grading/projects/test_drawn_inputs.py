"""Every check that gives points draws its inputs, or is listed here with the reason why it need not."""

from __future__ import annotations

import ast
import inspect
import sys
from functools import cache
from types import FunctionType

import pytest

from mlhood.grading.checks.task import Check
from mlhood.grading.projects import PROJECTS

TABLE = "the notebook's table of measurements, which the grader measures again"
OWN_GRAPH = "computed here from the notebook's own graph, whose weights the student has trained"
TIMED = "the times of the course's own programs, whose order is known"
NOT_DRAWN = {
    "P1.6 questions_are_answered": "two facts of LeNet, or what the student's own table says of it",
    "P2.8 rows_are_measured": OWN_GRAPH,
    "P2.11 rows_are_comparisons": TIMED,
    "P2.11 costs_are_counted": OWN_GRAPH,
    "P2.11 optimised_is_faster": TIMED,
    "P3.5 rows_are_comparisons": TABLE,
    "P3.5 operations_are_told": TABLE,
    "P3.5 blas_is_faster_and_agrees": TABLE,
    "P3.6 models_are_comparisons": TABLE,
    "P3.6 blas_speeds_up_the_model": TABLE,
    "P4.5 rows_are_comparisons": TABLE,
    "P4.5 operations_are_told": TABLE,
    "P4.5 orders_agree_and_analysed_is_faster": TABLE,
    "P4.6 network_rows_are_comparisons": TABLE,
    "P4.6 network_is_the_same_in_both_orders": TABLE,
}
CHECKS = [(task.id, check) for project in PROJECTS.values() for task in project.tasks for check in task.checks]


def draws(function: FunctionType, known: set[FunctionType]) -> bool:
    """Whether a function, or one that it calls by name, uses the generator of the submission."""
    if function in known:
        return False
    known.add(function)
    drawn, callees = _read(function)
    return drawn or any(draws(callee, known) for callee in callees)


@cache
def _read(function: FunctionType) -> tuple[bool, tuple[FunctionType, ...]]:
    """Whether a function itself uses the generator, and the functions of the grader that its source names."""
    tree = _definitions(function.__module__).get(function.__qualname__)
    if tree is None:  # made by a decorator, such as a dataclass's methods
        return False, ()
    module = sys.modules[function.__module__]
    attributes = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    values = [vars(module).get(node.id) for node in ast.walk(tree) if isinstance(node, ast.Name)]
    methods = [method for value in values if isinstance(value, type) for method in vars(value).values()]
    functions = [value for value in (*values, *methods) if isinstance(value, FunctionType)]
    ours = tuple(f for f in functions if f.__module__.startswith("mlhood.grading.projects"))
    return bool(attributes & {"rng", "normal"}), ours


@cache
def _definitions(module: str) -> dict[str, ast.FunctionDef]:
    """The functions and methods of a module by qualified name."""
    body = ast.parse(inspect.getsource(sys.modules[module])).body
    classes = [(f"{node.name}.", node.body) for node in body if isinstance(node, ast.ClassDef)]
    return {
        prefix + node.name: node
        for prefix, nodes in (("", body), *classes)
        for node in nodes
        if isinstance(node, ast.FunctionDef)
    }


@pytest.mark.parametrize(("task", "check"), CHECKS, ids=[f"{task} {check.name}" for task, check in CHECKS])
def test_a_check_draws_its_inputs(task: str, check: Check):
    function = getattr(check.function, "cases", check.function)
    assert isinstance(function, FunctionType)
    drawn = draws(function, set())
    assert drawn != (f"{task} {check.name}" in NOT_DRAWN), (
        "draw the inputs from submission.rng, or give a reason in NOT_DRAWN"
    )


def test_inputs_that_are_the_same_for_every_seed_are_noticed():
    assert not draws(_constant_inputs, set())


def _constant_inputs(submission) -> None:
    assert submission.call("f", 3) == 9
