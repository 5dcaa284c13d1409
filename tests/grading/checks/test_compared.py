"""Checks that compare a function of the notebook with that of the solution."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.grading.checks.compared import compared
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.rpc.transport import LocalTransport


def half(x):
    return x / 2


SOLUTIONS = {
    "half": half,
    "count": lambda x: 2 * x,
    "array": lambda x: np.full(3, x, np.float32),
    "parts": lambda x: {"total": 3 * x, "share": x / 4},
    "text": str,
    "flag": lambda x: x > 6,
    "pair": lambda x: (x, 2 * x),
    "items": lambda x: [x, x + 1],
}
TUPLE = {"tuple": lambda x: (x, 2 * x, str(x))}


@pytest.fixture
def submission(tmp_path):
    def make(**names):
        session = Session(LocalTransport(names), tmp_path, tmp_path)
        values = SimpleNamespace(unit="m")
        return Submission(
            session,
            CheckContext(parameters=values, solution=lambda name, *args, probe="": (SOLUTIONS | TUPLE)[name](*args)),
        )

    return make


def check_of(function, **options):
    @compared(2, function, **{"hint": "in {{ unit }}", **options})
    def name_of_the_check(submission):
        """The title."""
        for x in (6, 7):
            yield (x,)

    return name_of_the_check


def test_a_check_has_the_name_and_the_docstring_of_the_function_that_draws():
    check = check_of("half")
    assert (check.name, check.title, check.points) == ("name_of_the_check", "The title", 2)


@pytest.mark.parametrize("function", SOLUTIONS)
def test_the_solution_passes(function, submission):
    check_of(function, key="total" if function == "parts" else "")(submission(**{function: SOLUTIONS[function]}))


@pytest.mark.parametrize(
    ("function", "wrong", "what", "got"),
    [
        ("half", lambda x: x, "what `half` returns is wrong", "6"),
        ("count", lambda x: 2.0 * x, "no integer in what `count` returns", "12.0"),
        ("array", lambda x: np.full(3, x + (x > 6), np.float32), "wrong values in what `array` returns", "8"),
        ("text", repr, "what `text` returns is wrong", "'6'"),
        ("flag", lambda x: False, "what `flag` returns is wrong", "False"),
        ("pair", lambda x: (x, 2.0 * x), "no integer in what `pair` returns", "12.0"),
        ("pair", lambda x: [x, 2 * x], "no tuple in what `pair` returns", "[6, 12]"),
        ("pair", lambda x: (x, 3 * x), "what `pair` returns is wrong", "(6, 18)"),
        ("items", lambda x: [x], "the wrong number of items in what `items` returns", "1"),
    ],
)
def test_a_wrong_result_fails_with_the_call(function, wrong, what, got, submission):
    wrong = (lambda x: str(x) * 2) if function == "text" else wrong
    with pytest.raises(CheckFailed) as failure:
        check_of(function)(submission(**{function: wrong}))
    assert failure.value.what == what
    assert failure.value.parts["for"].startswith(f"{function}(")
    assert failure.value.parts["hint"] == "in m"


def test_an_error_has_the_call_and_the_hint(submission):
    with pytest.raises(CheckFailed, match="stops with an error") as failure:
        check_of("half")(submission(half=lambda x: x / 0))
    assert (failure.value.parts["for"], failure.value.parts["hint"]) == ("half(6)", "in m")


@pytest.mark.parametrize(("unit", "hint"), [("m", "doubled"), ("", "in {{ unit }}")])
def test_a_common_mistake_has_its_own_hint_where_it_is_one(unit, hint, submission):
    mistakes = {"doubled" if unit else "{% if false %}never{% endif %}": lambda right, x: 2 * right}
    with pytest.raises(CheckFailed) as failure:
        check_of("count", mistakes=mistakes)(submission(count=lambda x: 4 * x))
    assert failure.value.parts["hint"] == hint.replace("{{ unit }}", "m")


def test_an_array_has_to_be_of_the_type_if_that_is_asked(submission):
    doubles = submission(array=lambda x: np.full(3, float(x)))
    check_of("array")(doubles)
    with pytest.raises(CheckFailed, match="wrong data type"):
        check_of("array", typed=True)(doubles)


def test_a_key_is_missing(submission):
    with pytest.raises(CheckFailed, match="total missing") as failure:
        check_of("parts", key="total")(submission(parts=lambda x: {"share": 1}))
    assert failure.value.parts["hint"] == "return {'total': ..., 'share': ...}"


def own_half(submission, result, x):
    return submission.call("count", x) / 4


@pytest.mark.parametrize("count", [lambda x: 2 * x, lambda x: 8 * x])
def test_a_result_that_follows_from_others_is_right(count, submission):
    check_of("half", own=own_half)(submission(half=lambda x: count(x) / 4, count=count))


def test_results_that_follow_from_others_have_to_depend_on_the_arguments(submission):
    with pytest.raises(CheckFailed, match="the same for all arguments"):
        check_of("half", own=own_half)(submission(half=lambda x: 0.0, count=lambda x: 0))


PAIR = {1: "the double", 2: "the text"}


def test_elements_of_a_tuple_are_compared_by_name(submission):
    check = check_of("tuple", parts=PAIR)
    check(submission(tuple=lambda x: [None, 2 * x, str(x)]))
    with pytest.raises(CheckFailed, match="the text by `tuple` is wrong"):
        check(submission(tuple=lambda x: (None, 2 * x, "")))
    for incomplete in (None, 5, (1, 2)):
        with pytest.raises(CheckFailed, match="does not return a tuple of all its results"):
            check(submission(tuple=lambda x, incomplete=incomplete: incomplete))


def test_an_element_is_not_compared_where_a_check_that_it_presupposes_fails(submission):
    simpler, other = check_of("half"), check_of("half")
    wrong = submission(tuple=lambda x: (None, -1, str(x)))
    wrong.context = replace(wrong.context, passed=lambda check: check is other)
    check_of("tuple", parts=PAIR, presupposes={1: simpler, 2: other})(wrong)
    with pytest.raises(CheckFailed, match="nothing that `tuple` returns is right"):
        check_of("tuple", parts=PAIR, presupposes={1: simpler, 2: simpler})(wrong)


@pytest.mark.parametrize("key", [1, lambda parameters: {"m": 1}[parameters.unit]])
def test_an_item_of_a_tuple_is_compared(key, submission):
    check_of("pair", key=key)(submission(pair=lambda x: (0, 2 * x)))
    with pytest.raises(CheckFailed, match="item 1 of `pair` is wrong"):
        check_of("pair", key=key)(submission(pair=lambda x: (x, 0)))
