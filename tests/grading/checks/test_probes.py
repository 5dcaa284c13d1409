"""Global names that a student's function sees are replaced, however it is wrapped."""

from __future__ import annotations

import functools

import numba
import pytest

from mlhood.grading.checks.probes import patched_globals


def helper(x):
    return x


def plain(x):
    return helper(x)


def default(x, go=helper):
    return go(x)


def logged(function):
    @functools.wraps(function)
    def inner(*args):
        return function(*args)

    return inner


class Callable:
    def __call__(self, x):
        return helper(x)

    def method(self, x):
        return helper(x)


WRAPPED = {
    "a function": plain,
    "a default argument": default,
    "a decorated function": logged(plain),
    "a partial function": functools.partial(plain),
    "an object": Callable(),
    "a method": Callable().method,
}


@pytest.mark.parametrize("name", WRAPPED)
def test_names_are_replaced_and_restored(name):
    function = WRAPPED[name]
    with patched_globals(function, helper=lambda x: -x, other=1):
        assert function(3) == -3
        assert globals()["other"] == 1
    assert function(3) == 3
    assert "other" not in globals()


def test_a_compiled_function_has_the_names_of_its_source():
    compiled = numba.njit(plain)
    with patched_globals(compiled, helper=lambda x: -x):
        assert compiled.py_func(3) == -3
    assert compiled.py_func(3) == 3
