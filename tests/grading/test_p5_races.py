from __future__ import annotations

import time

import numpy as np
import pytest

from mlhood.grading.expect import CheckFailed
from mlhood.grading.projects.p5 import probes_race, races, reference
from mlhood.grading.projects.p5.table import jax_is_faster_where_it_fuses
from mlhood.grading.submission import LocalTransport, Submission
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.tables import operators_table
from mlhood.measure import Measurement


def slowed(function, seconds: float = 0.05):
    def slow(*arguments, **named):
        time.sleep(seconds)
        return function(*arguments, **named)

    return slow


@pytest.mark.parametrize("name", ["reference", "compiled", "own"])
def test_operators_that_race_compute_the_same(name, tmp_path):
    names = {"conv2d": reference.conv2d, "batch_norm": reference.batch_norm, "relu": lambda x: np.maximum(x, 0)}
    submission = Submission(LocalTransport(names), tmp_path, tmp_path)
    operators = [submission.value(one) for one in names] if name == "own" else []
    one = races._call(name, *operators)
    arguments = one.make(submission.rng)
    one.check(arguments, submission.call(one.target, *arguments), submission.rng)


def test_times_that_were_invented_fail_by_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(probes_race, "compiled", slowed(probes_race.reference))
    invented = operators_table()
    for row in invented.rows:
        for column, seconds in (("No-JAX", 0.04), ("JAX", 0.001)):
            times = tuple(seconds * (1 + 0.01 * number) for number in range(21))
            invented[row, column] = Measurement(times, None, row, True)
    names = {"table": invented, **{one: getattr(no_jax, one) for one in ("conv2d", "batch_norm", "relu")}}
    submission = Submission(LocalTransport(names), tmp_path, tmp_path)
    with pytest.raises(CheckFailed, match="JAX is not faster as the table has it"):
        jax_is_faster_where_it_fuses.function(submission)
