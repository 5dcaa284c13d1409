"""The benchmark of the simulator."""

import json

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.dataflow.cache import bench
from mlhood.dataflow.slicing.caches import declared
from mlhood.dataflow.slicing.problem import Problem
from mlhood.errors import CacheError

SMALL = Problem(64, 8, (3, 3), (16, 16), 8, 8)


@pytest.mark.parametrize(
    ("size", "expected"), [(32 * 1024, 8), (48 * 1024, 12), (1024**2, 8), (36 * 1024**2, 9), (64 * 4, 4), (64 * 5, 5)]
)
def test_ways_leave_a_power_of_two_of_sets(size, expected):
    assert bench.ways(size, 64) == expected


def test_a_run_has_predicted_and_simulated_lines_of_both_orders():
    runs = bench.runs(declared("4KiB,16KiB,64KiB"), SMALL)
    assert [run.slicing.order for run in runs] == ["IS", "WS"]
    for run in runs:
        data = json.loads(json.dumps(run.as_dict()))
        calls = SMALL.input_tiles * SMALL.weight_tiles
        sums = calls * -(-SMALL.output_bytes // 64)
        slices = -(-SMALL.channels // run.slicing.k1)
        # each call loads an element per window and filter; it loads and stores its sums, in the first slice only stores
        assert data["accesses"] == calls * 72 * (8 + 8) + sums * (2 * slices - 1)
        assert data["simulated"]["L1"] >= data["simulated"]["L2"] >= data["simulated"]["L3"] > 0
        assert data["per_second"] > 0


def test_every_line_comes_from_memory_at_least_once():
    tiles = SMALL.input_tiles * SMALL.input_bytes + SMALL.weight_tiles * SMALL.weight_bytes
    compulsory = (tiles * SMALL.channels + SMALL.input_tiles * SMALL.weight_tiles * SMALL.output_bytes) // 64
    for run in bench.runs(declared("4KiB,16KiB,64KiB"), SMALL):
        assert run.hits.memory >= compulsory


def test_unknown_caches_are_rejected():
    with pytest.raises(CacheError, match="all levels"):
        bench.runs(declared("32KiB,1MiB,-"), SMALL)


def test_the_command_prints_rates_and_deviations(monkeypatch):
    runs = bench.runs
    monkeypatch.setattr(bench, "runs", lambda caches: runs(caches, SMALL))
    text = CliRunner().invoke(app, ["bench", "cache"]).stdout
    assert text.count("million accesses/s") == 2
    data = json.loads(CliRunner().invoke(app, ["bench", "cache", "--json"]).stdout)
    assert data["caches"]["sizes"]["L1"] == 32 * 1024
    assert len(data["runs"]) == 2
