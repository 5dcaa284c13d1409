from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.rpc.guard import CHANGED, SHARED, guarded
from mlhood.grading.rpc.transport import LocalTransport

X = np.arange(6, dtype=np.float32)


def add_in_place(x):
    x += 1
    return x.copy()


def extend(x):
    x.append(1)
    return len(x)


def nested(x):
    x["a"][0]["b"][...] = 0
    return 0


def reordered(x):
    x["a"] = x.pop("a")
    return 0


@pytest.mark.parametrize(
    ("function", "argument", "broken"),
    [
        (add_in_place, X, CHANGED),
        (extend, [1, 2], CHANGED),
        (nested, {"a": [{"b": X}]}, CHANGED),
        (reordered, {"a": 1, "b": 2}, CHANGED),
        (lambda x: x, X, SHARED),
        (lambda x: x.reshape(2, 3), X, SHARED),
        (lambda x: {"y": [x[::2]]}, X, SHARED),
        (lambda x: x + 1, X, ""),
        (lambda x: x.copy(), X, ""),
        (lambda x: x, [1, 2], ""),
        (lambda x: x * 2, np.array([np.nan, 1], np.float32), ""),
        (lambda x: str(x), object(), ""),
    ],
)
def test_arguments_are_left_alone_and_results_are_new(function, argument, broken):
    assert guarded(function, [copy.deepcopy(argument)])[1] == broken
    assert guarded(function, kwargs={"x": copy.deepcopy(argument)})[1] == broken


def submission(tmp_path, **names: Any) -> Submission:
    return Submission(Session(LocalTransport(names), tmp_path, tmp_path))


def test_a_call_that_breaks_a_rule_fails_with_the_name_of_the_function(tmp_path):
    notebook = submission(tmp_path, f=add_in_place, g=lambda x: x[1:], h=lambda x: -x)
    with pytest.raises(CheckFailed, match="`f` changes its arguments"):
        notebook.call("f", X.copy())
    with pytest.raises(CheckFailed, match="`g` returns its argument or a part of it"):
        notebook.call("g", X.copy())
    np.testing.assert_array_equal(notebook.call("h", X), -X)


def test_an_object_that_comes_back_may_change_itself(tmp_path):
    class Counter:
        count = 0

        def step(self):
            self.count += 1
            return self.count

    notebook = submission(tmp_path, make=Counter)
    counter = notebook.call("make")
    assert notebook.call(counter, method="step") == 1
