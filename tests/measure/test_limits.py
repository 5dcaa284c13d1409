"""Ceilings: the arithmetic on a fake clock, the loops by what they compute, and no opinion about how fast this is."""

import ctypes
import threading

import numpy as np
import pytest

from mlhood.errors import MeasureError
from mlhood.measure import limits, microbenchmarks
from mlhood.measure.limits import Bandwidth, Ceiling, Ceilings, bandwidth, describe, level, measure_rate, peak, sizes
from mlhood.measure.machine import machine
from mlhood.measure.machine.facts import Caches, Cores, Memory

SMALL = Caches(l1d=32 * 1024, l2=2**18, l3=None, line=64)


@pytest.mark.parametrize("lanes", [1, 4, 8, 16])
@pytest.mark.parametrize("accumulators", [1, 12, 24])
def test_the_loop_of_multiply_adds_computes_what_it_says(lanes, accumulators):
    place = np.linspace(0.1, 0.9, lanes * (accumulators + 1), dtype=np.float32)
    factor, x = place[:lanes].astype(np.float64), place[lanes:].reshape(accumulators, lanes).astype(np.float64)
    microbenchmarks.multiply_add(lanes, accumulators)(place.ctypes.data, 5)
    for _ in range(5):
        x = x * factor + factor
    np.testing.assert_allclose(place[lanes:].reshape(accumulators, lanes), x, rtol=1e-5)


@pytest.mark.parametrize("lanes", [1, 4, 16])
def test_the_triad_computes_what_it_says(lanes):
    a, b, c = np.random.default_rng(0).random((3, 8 * lanes + 1), np.float32)
    expected, last = b + np.tile(c[:lanes], 9)[: len(b)] * c, a[-1]
    microbenchmarks.triad(lanes)(a.ctypes.data, b.ctypes.data, c.ctypes.data, 8, 2)
    np.testing.assert_allclose(a[:-1], expected[:-1], rtol=1e-6)
    assert a[-1] == last


def test_every_accumulator_is_one_instruction_of_its_own():
    source = microbenchmarks.multiply_add_source(8, 12)
    assert source.count("call <8 x float> @llvm.fmuladd.v8f32") == 12
    assert source.count("phi <8 x float>") == 12


def test_llvm_that_fails_is_told():
    with pytest.raises(MeasureError, match="LLVM cannot compile"):
        microbenchmarks.Native("this is no program", "f", ctypes.c_int64)


class Ticks:
    """A clock for several threads, of which work moves only the own one."""

    def __init__(self):
        self.own = threading.local()

    def now(self):
        return getattr(self.own, "now", 0.0)

    def work(self, units):
        self.own.now = self.now() + units * 1e-6


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_the_rate_is_that_of_all_threads(threads):
    ticks = Ticks()
    found = measure_rate(lambda: ticks.work, 8.0, threads, 3, ticks.now)
    assert found.threads == threads
    assert found.rates == pytest.approx([8e6 * threads] * 3)


def test_an_error_in_a_thread_comes_out_and_stops_the_others():
    calls = []

    def work(units):
        calls.append(units)
        if len(calls) > 50:
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        measure_rate(lambda: work, 1.0, 3, 100)


@pytest.mark.parametrize(("threads", "rounds"), [(0, 1), (1, 0)])
def test_nothing_to_do_is_refused(threads, rounds):
    with pytest.raises(MeasureError, match="nothing to do"):
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
def test_sizes_lie_in_levels(size, threads, expected):
    assert level(size, Caches(l1d=32 * 1024, l2=2**18, l3=2**23), threads) == expected


def test_unknown_caches_are_left_out():
    assert level(2**20, Caches(), 1) is None
    assert level(2**20, SMALL, 1) == "memory"
    assert level(2**17, Caches(l1d=2**15), 1) == "memory"


def test_sizes_grow_past_the_last_cache_and_stay_in_the_room():
    found = sizes(SMALL, 1, 2**40)
    assert found == sorted(set(found))
    assert found[0] == 12 * 1024
    assert found[-1] >= 4 * 2**18
    assert sizes(SMALL, 2, 2**40)[-1] < found[-1]
    assert max(sizes(Caches(), 1, 2**20)) <= 2**20 * 2**0.5
    assert sizes(SMALL, 1, 0) == [12 * 1024]


def test_the_sweep_covers_the_levels(monkeypatch):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    here = machine()
    fake = type(here)(**{**vars(here), "caches": SMALL, "memory": Memory(2**30)})
    found = bandwidth(1, fake, rounds=2)
    assert {one.level for one in found} == {"L1", "L2", "memory", None}
    assert all(one.ceiling.value > 0 and one.size % 3 == 0 for one in found)
    assert "KiB" in describe(found)


@pytest.mark.parametrize("lanes", [None, 4])
def test_the_peak_is_measured_with_any_width(monkeypatch, lanes):
    monkeypatch.setattr(limits, "SECONDS", 1e-5)
    assert peak(1, lanes, rounds=2).value > 0
    assert peak(2, lanes, rounds=2).threads == 2


def test_all_ceilings_make_a_roofline():
    sweep = (
        Bandwidth(2**14, "L1", Ceiling((50.0, 60.0), 1)),
        Bandwidth(2**15, "L1", Ceiling((70.0,), 1)),
        Bandwidth(2**16, None, Ceiling((99.0,), 1)),
        Bandwidth(2**30, "memory", Ceiling((5.0,), 1)),
    )
    found = Ceilings(Ceiling((100.0, 90.0), 1), sweep, 4)
    assert found.bandwidths == {"L1": 70.0, "memory": 5.0}
    assert found.roofline().attainable(2.0) == 10.0
    assert "peak     100 FLOP/s" in str(found)
    assert found.to_dict()["sweep"][0]["level"] == "L1"


def test_processors_that_may_be_used_are_counted(monkeypatch):
    here = machine()
    for usable, expected in ((1.5, 1), (0.5, 1), (8, 8)):
        cores = Cores(8, 8, usable)
        monkeypatch.setattr(limits, "this_machine", lambda cores=cores: type(here)(**{**vars(here), "cores": cores}))
        assert limits.all_threads() == expected
