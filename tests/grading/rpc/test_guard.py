from __future__ import annotations

import copy
from typing import Any

import numpy as np
import pytest
import torch

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import Session, Submission
from mlhood.grading.rpc.guard import CHANGED, REUSED, SHARED, call_guarded, guarded
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


@pytest.mark.parametrize(
    ("function", "broken"),
    [
        (lambda x: x.zero_(), CHANGED),
        (lambda x: x.T, SHARED),
        (lambda x: x.numpy()[1:], SHARED),
        (lambda x: x.clone(), ""),
        (lambda x: x.requires_grad_(False) + 1, ""),
    ],
)
def test_tensors_are_arrays(function, broken):
    assert guarded(function, [torch.ones(2, 3)])[1] == broken


def test_a_result_is_not_memory_of_an_earlier_one():
    kept = np.zeros(4)
    assert guarded(lambda: kept)[1] == ""
    assert guarded(lambda: [np.ones(3), kept[1:]])[1] == REUSED
    assert guarded(lambda: kept.copy())[1] == ""
    for _ in range(20):  # what is freed may be allocated again
        assert guarded(lambda: np.zeros(1000))[1] == ""


def submission(tmp_path, **names: Any) -> Submission:
    return Submission(Session(LocalTransport(names), tmp_path, tmp_path))


def test_a_call_that_breaks_a_rule_fails_with_the_name_of_the_function(tmp_path):
    notebook = submission(tmp_path, f=add_in_place, g=lambda x: x[1:], h=lambda x: -x)
    with pytest.raises(CheckFailed, match="`f` changes its arguments"):
        notebook.call("f", X.copy())
    with pytest.raises(CheckFailed, match="`g` returns its argument or a part of it"):
        notebook.call("g", X.copy())
    np.testing.assert_array_equal(notebook.call("h", X), -X)


def test_a_probe_tells_of_a_broken_rule(tmp_path):
    notebook = submission(tmp_path, f=add_in_place, probe=call_guarded)
    with pytest.raises(CheckFailed, match="`add_in_place` changes its arguments"):
        notebook.call("probe", notebook.value("f"), X.copy())


def test_an_object_that_comes_back_may_change_itself(tmp_path):
    class Counter:
        count = 0

        def step(self):
            self.count += 1
            return self.count

    notebook = submission(tmp_path, make=Counter)
    counter = notebook.call("make")
    assert notebook.call(counter, method="step") == 1
