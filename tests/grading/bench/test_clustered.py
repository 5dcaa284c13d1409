"""A cluster that loses a worker gives the marks that this machine gives."""

from __future__ import annotations

import sys

import pytest

from mlhood.errors import GradingError
from mlhood.grading.bench.clustered import CLUSTER, LOCAL, BothWays, Setting, both_ways
from tests.grading.bench.fakes import some

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")


def test_both_ways_give_the_same_marks(fake, tmp_path):
    pytest.importorskip("distributed")
    told = []
    ways = BothWays(some(10), Setting())
    both_ways(ways, tmp_path, told.append)
    assert ways.held
    assert ways.differing == []
    assert {way: audit.whole for way, audit in ways.audits.items()} == {LOCAL: 10, CLUSTER: 10}
    assert any(line.startswith("killed a worker") for line in told)
    assert f"one, after {ways.killed} submissions" in ways.text()
    assert ways.as_dict()["calls"][CLUSTER]["graded"] == 10


def test_without_dask_the_way_to_it_is_told(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    ways = BothWays(some(2), Setting())
    with pytest.raises(GradingError, match="Dask is not installed"):
        both_ways(ways, tmp_path, print)
    assert ways.text() == "nothing was measured"
    assert not ways.held
