"""Timed comparisons of P4's slices and network."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.dataflow.slicing.problem import ORDERS
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.projects.p4 import P4, timed
from mlhood.grading.projects.solution import Solution
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.kernels.layers import Layer

LAYER, SMALL, LARGE = Layer(16, 14, 24, 3), (1, 2, 3), (16, 99, 99)
KERNEL = Solution("P4", P4.parameters).function("sliced_kernel")


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize(
    ("tiles", "timed", "course"),
    [
        (SMALL, lambda *case: timed.timed_slices(LAYER, *case), lambda *case: timed.same_slices(LAYER, *case)),
        (LARGE, lambda *case: timed.timed_slices(LAYER, *case), lambda *case: timed.same_slices(LAYER, *case)),
        (LARGE, timed.timed_network, lambda *case: timed.same_network(KERNEL, *case)),
    ],
    ids=["small", "large", "network"],
)
def test_timed_slices_compute_the_layer(order, tiles, timed, course, tmp_path):
    context = CheckContext(parameters=SimpleNamespace(**P4.parameters))
    submission = Submission(Session(LocalTransport({"sliced_kernel": KERNEL}), tmp_path, tmp_path), context)
    call = timed(order, tiles)
    prepared = call.prepare(submission, call.calls)
    result = submission.call(call.target, *prepared.arguments)
    prepared.check(result)
    with pytest.raises(CheckFailed, match="wrong values"):
        prepared.check(np.roll(result, 1))
    same = course(order, tiles)
    same.run()
    assert same.calls == call.calls
