"""The checks of P2 in the test's own process: what is counted and measured there cannot be invented."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.grading.checks.marks import judge
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects.p2 import P2, accuracy
from mlhood.grading.rpc.transport import LocalTransport

TWO_NESTS = """
def linear_relu(x, w, b, y):
    rows, outputs = y.shape
    for i in range(rows):
        for j in range(outputs):
            y[i, j] = b[j] + sum(x[i, k] * w[j, k] for k in range(w.shape[1]))
    for i in range(rows):
        for j in range(outputs):
            y[i, j] = max({z}, 0)
"""
RESETS = ["y.reads = 0; y.writes = y.size", "y.array", "y._counts.reads = 0", "vars(y).update(reads=0)"]


def judged(source: str, folder) -> dict[str, str]:
    names: dict = {"np": np}
    exec(source, names)
    task = P2.task("P2.1")
    assert task is not None
    result = judge(task, Session(LocalTransport(names), folder, folder), 5)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}


def test_two_nests_read_back_what_they_wrote(tmp_path):
    messages = judged(TWO_NESTS.format(z="y[i, j]"), tmp_path)
    assert not messages["one_nest_computes_the_layer"]
    assert messages["nothing_is_stored_in_between"]


@pytest.mark.parametrize("reset", RESETS)
def test_counts_cannot_be_set_back(reset, tmp_path):
    source = TWO_NESTS.format(z="y[i, j]") + f"    try:\n        {reset}\n    except Exception:\n        pass\n"
    assert judged(source, tmp_path)["nothing_is_stored_in_between"]


RIGHT = dict(zip(accuracy.ROWS, (31.0, 30.0, 28.0, 22.0, 33.0, 70.0), strict=True))


@pytest.mark.parametrize(
    ("own", "measured"),
    [
        ({name: ratio * np.log(10) / 10 for name, ratio in RIGHT.items()}, True),
        ({name: -ratio for name, ratio in RIGHT.items()}, True),
        ({name: ratio - 0.4 for name, ratio in RIGHT.items()}, True),
        (dict.fromkeys(RIGHT, 5.0), False),
        (dict(zip(RIGHT, (1.0, 2.0, 3.0, 4.0, 5.0, 0.0), strict=True)), False),
        (RIGHT | {"symmetric": float("inf")}, False),
    ],
)
def test_a_wrong_table_that_was_measured_resembles_the_right_one(own, measured):
    assert accuracy._measured_somehow(own, RIGHT) == measured
