"""Timed comparisons of P5's operators and of ResNet-18."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.projects.p5 import P5, probes_timed, table, timed
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.jaxlab.operators import no_jax
from mlhood.jaxlab.operators.cases import FUSED, NETWORK
from mlhood.jaxlab.tables import JAX, NO_JAX, operators_table
from mlhood.measure import Measurement

NAMES = {name: getattr(no_jax, name) for name in table.OPERATORS}


def with_table(jax: dict[str, float], tmp_path) -> Submission:
    """A notebook whose table has 40 ms for No-JAX in every row, and these seconds for JAX; 30 ms in other rows."""
    filled = operators_table()
    for row in filled.rows:
        for column, seconds in ((NO_JAX, 0.04), (JAX, jax.get(row, 0.03))):
            times = tuple(seconds * (1 + 0.01 * i) for i in range(21))
            filled[row, column] = Measurement(times, None, row, True)
    session = Session(LocalTransport({"table": filled, **NAMES}), tmp_path, tmp_path)
    return Submission(session, CheckContext(np.random.default_rng(3), parameters=SimpleNamespace(**P5.parameters)))


@pytest.mark.parametrize("side", ["slow", "fast"])
@pytest.mark.parametrize("row", [FUSED, NETWORK])
def test_timed_calls_compute_the_same(row, side, tmp_path, monkeypatch):
    monkeypatch.setattr(timed, "CHECKED_SHARE", 1.0)
    monkeypatch.setattr(timed, "IMAGE", (1, 3, 32, 32))
    monkeypatch.setattr(timed, "SIZE", 8)
    submission = with_table({}, tmp_path)
    claim = table._timing_claims(submission, table._table(submission))[row == NETWORK]
    assert claim.course is not None
    claim.course.run()
    call = getattr(claim, side)
    for calls in (1, call.calls):
        prepared = call.prepare(submission, calls)
        result = submission.call(call.target, *prepared.arguments)
        prepared.check(result)
    with pytest.raises(CheckFailed, match="wrong values"):
        prepared.check(np.roll(result, 1))


def test_what_is_compiled_is_traced_once(monkeypatch):
    program = probes_timed.compiled(lambda x: 2 * x)
    for _ in range(3):
        np.testing.assert_array_equal(program(np.ones(3)), np.full(3, 2))
    with pytest.raises(RuntimeError, match="not compiled once"):
        program(np.ones(4))
    monkeypatch.setattr(probes_timed.jax, "jit", lambda function: function)
    uncompiled = probes_timed.compiled(lambda x: 2 * x)
    uncompiled(np.ones(3))
    with pytest.raises(RuntimeError, match="not compiled once"):
        uncompiled(np.ones(3))


@pytest.mark.parametrize(("row", "jax"), [(FUSED, 0.02), (FUSED, 0.04), (FUSED, 0.08), (NETWORK, 0.08)])
def test_the_column_that_the_table_has_ahead_is_timed_as_the_faster_one(row, jax, tmp_path):
    submission = with_table({row: jax}, tmp_path)
    claim = table._timing_claims(submission, table._table(submission))[row == NETWORK]
    assert claim.claimed.value == pytest.approx(max(0.04 / jax, jax / 0.04))
    assert (claim.course is None) == (jax > 0.04)
    assert claim.name == f"{row}, {'JAX over No-JAX' if jax > 0.04 else 'No-JAX over JAX'}"
    assert not claim.directed


def test_each_check_of_the_table_measures_it_again(tmp_path, monkeypatch):
    monkeypatch.setattr(table.timed, "claims", lambda *_, **__: pytest.fail("not measured"))
    submission = with_table({}, tmp_path)
    for check in (table.rows_are_comparisons, table.columns_agree, table.ratios_are_measured_again):
        with pytest.raises(pytest.fail.Exception, match="not measured"):
            check.function(submission)
