from __future__ import annotations

import numpy as np
import pytest

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.expect import CheckFailed
from mlhood.grading.projects.p4 import races
from mlhood.grading.submission import LocalTransport, Submission
from mlhood.kernels.layers import Layer
from mlhood.measure.ratio import Ratio

SMALL, LARGE = (1, 2, 3), (16, 99, 99)
TOLD = Ratio(1.3, 1.2, 1.4)


def calls() -> list:
    layer = Layer(16, 14, 24, 3)
    found = races.slicings(
        layer, dict.fromkeys(ORDERS, SMALL), dict.fromkeys(ORDERS, LARGE), dict.fromkeys(ORDERS, TOLD)
    )
    return [call for one in found for call in (one.slow, one.fast, one.reference)]


@pytest.mark.parametrize("number", range(6))
def test_slices_that_race_compute_the_layer(number, tmp_path):
    submission, call = Submission(LocalTransport({}), tmp_path, tmp_path), calls()[number]
    arguments = call.make(submission.rng)
    result = submission.call(call.target, *arguments)
    call.check(arguments, result, submission.rng)
    with pytest.raises(CheckFailed, match="wrong values"):
        call.check(arguments, np.roll(result, 1), submission.rng)


def test_only_what_the_table_has_measured_races():
    one = races.slicings(Layer(16, 14, 24, 3), {"WS": SMALL}, {"WS": LARGE}, {"WS": TOLD})
    assert [race.name for race in one] == ["too small over analysed, WS"]
