"""Ceilings: the arithmetic on a simulated clock, the loops by what they compute; no test depends on speed."""

import threading

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.errors import MeasureError
from mlhood.measure import limits
from mlhood.measure.limits import (
    Bandwidth,
    Ceiling,
    Ceilings,
    bandwidth,
    level,
    measure_rate,
    peak,
    reading,
    sizes,
)
from mlhood.measure.machine import machine
from mlhood.measure.machine.facts import CacheSizes, Cores, MainMemory
from mlhood.measure.microbenchmarks import Native, multiply_add_source, read_source, triad_source

SMALL = CacheSizes(l1d=32 * 1024, l2=2**18, l3=None, line=64)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("accumulators", [1, 12, 24])
def test_the_loop_of_multiply_adds_is_right(lanes, accumulators):
    buffer = np.linspace(0.1, 0.9, lanes * (accumulators + 1), dtype=np.float32)
    factor, x = buffer[:lanes].astype(np.float64), buffer[lanes:].reshape(accumulators, lanes).astype(np.float64)
    run = Native(multiply_add_source(lanes, accumulators))
    run(buffer[lanes:].ctypes.data, 0, buffer.ctypes.data, 5, 1)
    for _ in range(5):
        x = x * factor + factor
    np.testing.assert_allclose(buffer[lanes:].reshape(accumulators, lanes), x, rtol=1e-5)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_the_triad_is_right(lanes):
    a, b, c = np.random.default_rng(0).random((3, 8 * lanes + 1), np.float32)
    expected, last = b + np.tile(c[:lanes], 9)[: len(b)] * c, a[-1]
    Native(triad_source(lanes))(a.ctypes.data, b.ctypes.data, c.ctypes.data, 8, 2)
    np.testing.assert_allclose(a[:-1], expected[:-1], rtol=1e-6)
    assert a[-1] == last


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_reading_reads_all(lanes):
    b = np.random.default_rng(0).random(8 * lanes + 1, np.float32)
    sums = np.zeros(lanes, np.float32)
    Native(read_source(lanes))(sums.ctypes.data, b.ctypes.data, b.ctypes.data, 8, 2)
    np.testing.assert_allclose(sums, b[:-1].reshape(8, lanes).sum(axis=0), rtol=1e-6)


def test_every_accumulator_has_its_own_instruction():
    source = multiply_add_source(8, 12)
    assert source.count("call <8 x float> @llvm.fmuladd.v8f32") == 12
    assert source.count("phi <8 x float>") == 12


def test_invalid_ir_is_reported():
    with pytest.raises(MeasureError, match="LLVM cannot compile"):
        Native("invalid")


class ThreadClocks:
    """A simulated clock per thread, which work advances."""

    def __init__(self):
        self.local = threading.local()

    def now(self):
        return getattr(self.local, "now", 0.0)

    def work(self, units):
        self.local.now = self.now() + units * 1e-6


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_rate_is_that_of_all_threads(threads):
    clocks = ThreadClocks()
    ceiling = measure_rate(lambda: clocks.work, 8.0, threads, 3, clocks.now)
    assert ceiling.threads == threads
    assert ceiling.rates == pytest.approx([8e6 * threads] * 3)


def test_an_error_in_a_thread_is_raised_and_stops_the_others():
    calls = []

    def work(units):
        calls.append(units)
        if len(calls) > 50:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure_rate(lambda: work, 1.0, 3, 100)


@pytest.mark.parametrize(("threads", "rounds"), [(0, 1), (1, 0)])
def test_no_threads_and_no_rounds_are_refused(threads, rounds):
    with pytest.raises(MeasureError, match="invalid number of threads or rounds"):
        measure_rate(lambda: lambda units: None, 1.0, threads, rounds)


def test_a_ceiling_is_the_best_round():
    ceiling = Ceiling((1.0, 3.0, 2.0), 1)
    assert (ceiling.value, ceiling.median) == (3.0, 2.0)


@pytest.mark.parametrize(
    ("size", "threads", "expected"),
    [
        (12 * 1024, 1, "L1"),
        (30 * 1024, 1, None),
        (2**17, 1, "L2"),
        (2**18, 1, None),
        (2**21, 1, "L3"),
        (2**20, 8, None),
        (2**21, 8, "memory"),
        (2**25, 1, "memory"),
        (2**22, 8, "memory"),
    ],
)
def test_a_level_holds_a_size(size, threads, expected):
    assert level(size, CacheSizes(l1d=32 * 1024, l2=2**18, l3=2**23), threads) == expected


def test_unknown_caches_are_ignored():
    assert level(2**20, CacheSizes(), 1) is None
    assert level(2**20, SMALL, 1) == "memory"
    assert level(2**17, CacheSizes(l1d=2**15), 1) == "memory"


def test_sizes_exceed_the_last_cache_and_respect_the_limit():
    swept = sizes(SMALL, 1, 2**40)
    assert swept == sorted(set(swept))
    assert swept[0] == 12 * 1024
    assert swept[-1] >= 4 * 2**18
    assert sizes(SMALL, 2, 2**40)[-1] < swept[-1]
    assert max(sizes(CacheSizes(), 1, 2**20)) <= 2**20 * 2**0.5
    assert sizes(SMALL, 1, 0) == [12 * 1024]


def test_the_sweep_covers_the_levels(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    actual = machine()
    fake = type(actual)(**{**vars(actual), "caches": SMALL, "memory": MainMemory(2**30)})
    sweep = bandwidth(1, fake, rounds=2)
    assert {entry.level for entry in sweep} == {"L1", "L2", "memory", None}
    assert all(entry.ceiling.value > 0 and entry.size % 3 == 0 for entry in sweep)


@pytest.mark.parametrize("lanes", [None, 4])
def test_the_peak_is_measured_with_any_width(monkeypatch, lanes):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    assert peak(1, lanes, rounds=2).value > 0
    assert peak(2, lanes, rounds=2).threads == 2


def test_reading_is_measured_in_memory(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    actual = machine()
    fake = type(actual)(**{**vars(actual), "caches": SMALL, "memory": MainMemory(2**30)})
    assert reading(2, fake, rounds=2).threads == 2
    assert reading(1, fake, rounds=2).value > 0


def test_all_ceilings_make_a_roofline():
    sweep = (
        Bandwidth(2**14, "L1", Ceiling((50.0, 60.0), 1)),
        Bandwidth(2**15, "L1", Ceiling((70.0,), 1)),
        Bandwidth(2**16, None, Ceiling((99.0,), 1)),
        Bandwidth(2**30, "memory", Ceiling((5.0,), 1)),
    )
    ceilings = Ceilings(Ceiling((100.0, 90.0), 1), sweep, 4)
    assert ceilings.bandwidths == {"L1": 70.0, "memory": 5.0}
    assert ceilings.roofline().attainable(2.0) == 10.0
    assert "peak     100 FLOP/s" in str(ceilings)


def test_usable_processors_are_counted(monkeypatch):
    actual = machine()
    for usable, expected in ((1.5, 1), (0.5, 1), (8, 8)):
        cores = Cores(8, 8, usable)
        monkeypatch.setattr(
            limits, "this_machine", lambda cores=cores: type(actual)(**{**vars(actual), "cores": cores})
        )
        assert limits.all_threads() == expected


def test_the_command_prints_the_ceilings(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    actual = limits.this_machine()
    small = type(actual)(**{**vars(actual), "caches": CacheSizes(l1d=2**15, l2=2**17)})
    monkeypatch.setattr(limits, "this_machine", lambda: small)
    result = CliRunner().invoke(app, ["bench", "machine", "--threads", "1"])
    assert result.exit_code == 0, result.output
    assert "peak" in result.output
