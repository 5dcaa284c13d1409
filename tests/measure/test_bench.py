"""The bench of measuring itself; of the times nothing is asked."""

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.measure import bench, limits, load
from mlhood.measure.machine.facts import Caches
from mlhood.measure.ratio import Ratio


@pytest.fixture
def quick(monkeypatch):
    monkeypatch.setattr(bench, "pairs", lambda: {"sums": (2.0, bench._pair(lambda: sum(range(100)), 2, 4))})


def test_coverage_counts_the_intervals_that_hold_the_truth():
    found = [Ratio(2.0, 1.9, 2.1)] * 9 + [Ratio(2.2, 2.1, 2.3)]
    one = bench.Coverage("x", 2.0, found)
    assert (one.held, one.enough) == (9, True)
    assert one.row()["highest"] == 2.2
    assert not bench.Coverage("x", 2.0, [*found[1:], found[-1]]).enough


def test_every_pair_is_what_it_says():
    calls = []
    pair = bench._pair(lambda: calls.append(1), 2, 3)
    pair["less"]()
    pair["more"]()
    assert len(calls) == 5
    assert set(bench.pairs()) == {"registers, long", "registers, short", "BLAS 160 x 160", "copies of 4 MiB"}
    for _, made in bench.pairs().values():
        made["less"]()


def test_pairs_are_compared_while_cores_burn(quick):
    lines = []
    (found,) = bench.coverage(burners=1, runs=2, report=lines.append)
    assert lines == ["run 1 of 2", "run 2 of 2"]
    assert len(found.found) == len(found.results) == 2
    assert "sums" in bench.table([found])


def test_the_command_prints_a_table_and_stores_the_comparisons(quick, tmp_path):
    path = tmp_path / "runs.jsonl"
    said = CliRunner().invoke(app, ["bench", "measure", "--runs", "1", "--burners", "0", "--json", str(path)])
    assert said.exit_code in (0, 1), said.output
    assert "sums" in said.output
    assert [record.tags["pair"] for record in load(path, bench="measure")] == ["sums"]


def test_the_command_says_what_the_machine_can_do(monkeypatch, tmp_path):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    here = limits.this_machine()
    small = type(here)(**{**vars(here), "caches": Caches(l1d=2**15, l2=2**17)})
    monkeypatch.setattr(limits, "this_machine", lambda: small)
    picture = tmp_path / "roof.svg"
    said = CliRunner().invoke(app, ["bench", "machine", "--sizes", "--threads", "1", "--picture", str(picture)])
    assert said.exit_code == 0, said.output
    assert "peak" in said.output
    assert picture.read_bytes().startswith(b"<?xml")
    refused = CliRunner().invoke(
        app, ["bench", "machine", "--threads", "1", "--picture", str(tmp_path / "no" / "x.svg")]
    )
    assert "cannot be written" in str(refused.exception)
