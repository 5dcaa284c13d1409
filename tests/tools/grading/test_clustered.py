"""A cluster that loses a worker gives the same marks as this machine."""

from __future__ import annotations

import sys

import pytest

from mlhood.errors import GradingError
from tests.tools.grading.clustered import CLUSTER, LOCAL, ClusterComparison, Setting, compare_with_cluster
from tests.tools.grading.fakes import some

pytestmark = pytest.mark.skipif(sys.platform == "win32", reason="kills by signals")


def test_the_marks_are_the_same(fake, tmp_path):
    pytest.importorskip("distributed")
    log = []
    comparison = ClusterComparison(some(10), Setting())
    compare_with_cluster(comparison, tmp_path, log.append)
    assert comparison.held
    assert comparison.differing == []
    assert {target: audit.complete for target, audit in comparison.audits.items()} == {LOCAL: 10, CLUSTER: 10}
    assert any(line.startswith("killed a worker") for line in log)
    assert f"one, after {comparison.killed} submissions" in comparison.text()
    assert comparison.as_dict()["calls"][CLUSTER]["graded"] == 10


def test_without_dask_the_error_says_so(monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "distributed", None)
    comparison = ClusterComparison(some(2), Setting())
    with pytest.raises(GradingError, match="Dask is not installed"):
        compare_with_cluster(comparison, tmp_path, print)
    assert comparison.text() == "nothing was measured"
    assert not comparison.held
