"""The benchmark of the method itself; no test depends on times."""

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.measure import bench, limits, load
from mlhood.measure.machine.facts import Caches
from mlhood.measure.ratio import Ratio


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bench, "pairs", lambda: {"sums": (2.0, bench._pair(lambda: sum(range(100)), 2, 4))})


def test_coverage_counts_the_intervals_with_the_true_ratio():
    ratios = [Ratio(2.0, 1.9, 2.1)] * 9 + [Ratio(2.2, 2.1, 2.3)]
    coverage = bench.Coverage("x", 2.0, ratios)
    assert (coverage.covered, coverage.sufficient) == (9, True)
    assert coverage.row()["highest"] == 2.2
    assert not bench.Coverage("x", 2.0, [*ratios[1:], ratios[-1]]).sufficient


def test_every_pair_does_its_work():
    calls = []
    pair = bench._pair(lambda: calls.append(1), 2, 3)
    pair["less"]()
    pair["more"]()
    assert len(calls) == 5
    assert set(bench.pairs()) == {"registers, long", "registers, short", "BLAS 160 x 160", "copies of 4 MiB"}
    for _, alternatives in bench.pairs().values():
        alternatives["less"]()


def test_pairs_are_compared_while_cores_burn(quick):
    lines = []
    (coverage,) = bench.coverage(burners=1, runs=2, report=lines.append)
    assert lines == ["run 1 of 2", "run 2 of 2"]
    assert len(coverage.ratios) == len(coverage.results) == 2
    assert "sums" in bench.table([coverage])


def test_the_command_prints_a_table_and_stores_the_comparisons(quick, tmp_path):
    path = tmp_path / "runs.jsonl"
    result = CliRunner().invoke(app, ["bench", "measure", "--runs", "1", "--burners", "0", "--json", str(path)])
    assert result.exit_code in (0, 1), result.output
    assert "sums" in result.output
    assert [record.tags["pair"] for record in load(path, bench="measure")] == ["sums"]


def test_the_command_prints_the_ceilings(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    actual = limits.this_machine()
    small = type(actual)(**{**vars(actual), "caches": Caches(l1d=2**15, l2=2**17)})
    monkeypatch.setattr(limits, "this_machine", lambda: small)
    picture = tmp_path / "roof.svg"
    result = CliRunner().invoke(app, ["bench", "machine", "--sizes", "--threads", "1", "--picture", str(picture)])
    assert result.exit_code == 0, result.output
    assert "peak" in result.output
    assert picture.read_bytes().startswith(b"<?xml")
    refused = CliRunner().invoke(
        app, ["bench", "machine", "--threads", "1", "--picture", str(tmp_path / "no" / "x.svg")]
    )
    assert "cannot be written" in str(refused.exception)
