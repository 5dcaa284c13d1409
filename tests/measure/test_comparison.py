"""Comparisons on a simulated clock: the results are exact."""

import mmap
import random
import statistics
import sys

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.errors import MeasureError
from mlhood.measure import compare, comparison
from mlhood.measure.comparison import MAX_ATTEMPTS


class Simulation:
    """A simulated clock, and alternatives that advance it."""

    def __init__(self):
        self.now = 0.0
        self.calls = []
        self.preemptions = 0

    def alternative(self, name, lasts, value=0.0):
        def call():
            self.calls.append(name)
            self.now += lasts() if callable(lasts) else lasts
            return value

        return call


@pytest.fixture
def sim(monkeypatch):
    simulation = Simulation()
    monkeypatch.setattr(comparison, "clock", lambda: simulation.now)
    monkeypatch.setattr(comparison, "preemptions", lambda: simulation.preemptions)
    return simulation


def test_medians_and_ratios_are_exact(sim):
    result = compare({"a": sim.alternative("a", 0.25), "b": sim.alternative("b", 0.5)}, flops=1e9)
    assert result["a"].seconds == (0.25,) * 21
    assert result.repeats == {"a": 1, "b": 1}
    assert (result.ratio("b", "a").value, result.ratio("b").low, result.speedup("b").high) == (2.0, 2.0, 0.5)
    assert result["b"].flops_per_second == 2e9
    assert result["a"].agreed


def test_each_round_calls_all_in_a_new_order(sim):
    compare({name: sim.alternative(name, 1.0) for name in "abc"}, rounds=30)
    timed = sim.calls[-90:]
    rounds = [tuple(timed[i : i + 3]) for i in range(0, 90, 3)]
    assert all(sorted(order) == ["a", "b", "c"] for order in rounds)
    assert len(set(rounds)) == 6


def test_a_machine_that_slows_down_does_not_move_the_ratio(sim):
    speed = {"now": 1.0}

    def slower(lasts):
        def duration():
            speed["now"] *= 1.001
            return lasts * speed["now"]

        return duration

    result = compare({"a": sim.alternative("a", slower(1.0)), "b": sim.alternative("b", slower(3.0))})
    assert result["a"].seconds[-1] > 1.03 * result["a"].seconds[0]
    assert result.ratio("b").value == pytest.approx(3.0, rel=2e-3)
    assert result.ratio("b").high / result.ratio("b").low < 1.0025


def test_outliers_do_not_matter(sim):
    draw = random.Random(0)

    def noisy():
        return 100.0 if draw.random() < 0.15 else draw.uniform(0.99, 1.01)

    result = compare({"a": sim.alternative("a", noisy), "b": sim.alternative("b", lambda: 2 * noisy())})
    assert result.ratio("b").value == pytest.approx(2.0, rel=0.02)


def test_short_calls_are_repeated_until_the_clock_resolves_them(sim):
    result = compare({"a": sim.alternative("a", 1e-6), "b": sim.alternative("b", 1e-2)}, shortest=1e-3)
    assert result.repeats["b"] == 1
    assert 1000 <= result.repeats["a"] <= 1600
    assert result["a"].median == pytest.approx(1e-6)


def test_a_clock_that_does_not_advance_is_reported(sim):
    with pytest.raises(MeasureError, match="clock did not advance"):
        compare({"a": sim.alternative("a", 0.0)}, shortest=0)


def test_the_first_call_is_timed_separately(sim):
    lasts = iter([5.0])
    result = compare({"a": sim.alternative("a", lambda: next(lasts, 1.0))})
    assert result.first == {"a": 5.0}
    assert set(result["a"].seconds) == {1.0}


def test_hot_means_called_immediately_before(sim):
    cold = []

    def a():
        sim.calls.append("a")
        sim.now += 1.0 if sim.calls[-2:-1] == ["a"] else 2.0

    def b():
        sim.calls.append("b")
        sim.now += 1.0

    for cache, expected in (("interleaved", 1.0), ("hot", 1.0)):
        result = compare({"a": a, "b": b}, cache=cache, check=False)
        cold.append(max(result["a"].seconds))
        assert min(result["a"].seconds) == expected
    assert cold == [2.0, 1.0]


def test_an_interrupted_round_is_repeated(sim):
    count = iter(range(1000))

    def sometimes():
        if next(count) % 3 == 0:
            sim.preemptions += 1
            return 0.011
        return 0.001

    result = compare({"a": sim.alternative("a", sometimes), "b": sim.alternative("b", 0.001)})
    assert result["a"].seconds == pytest.approx([0.001] * 21)
    assert result.interrupted == 0


def test_attempts_are_limited_and_the_least_interrupted_counts(sim):
    timed = []

    def always():
        lasts = 0.001 * (1 + len(timed) % MAX_ATTEMPTS)
        sim.preemptions += 1 + len(timed) % MAX_ATTEMPTS
        timed.append(lasts)
        return lasts

    result = compare({"a": sim.alternative("a", always)})
    assert len(timed) == 4 + 2 * 21  # as many repeated rounds as rounds, however busy the machine is
    assert result.interrupted == 21
    assert "21 rounds interrupted" in result.note()
    assert result["a"].seconds[:4] == pytest.approx([0.001] * 4)


def test_long_rounds_are_measured_once(sim):
    def always():
        sim.preemptions += 1
        return 1.0

    compare({"a": sim.alternative("a", always)})
    assert len(sim.calls) == 21 + 1 + 2 + 1


def test_an_alternative_that_disagrees_is_named(sim):
    with pytest.raises(MeasureError, match="disagree") as caught:
        compare({"a": sim.alternative("a", 1.0, np.zeros(3)), "b": sim.alternative("b", 1.0, np.ones(3))})
    assert "'b' against 'a'" in str(caught.value)


def test_the_baseline_is_the_reference_at_any_position(sim):
    alternatives = {"a": sim.alternative("a", 1.0, 1), "b": sim.alternative("b", 1.0, 2)}
    with pytest.raises(MeasureError, match="disagree") as caught:
        compare(alternatives, baseline="b")
    assert "'a' against 'b'" in str(caught.value)


def test_alternatives_may_share_an_output_buffer(sim):
    buffer = np.zeros(3)

    def fill(value):
        def call():
            sim.now += 1.0
            buffer[:] = value
            return buffer

        return call

    with pytest.raises(MeasureError, match="disagree"):
        compare({"a": fill(1), "b": fill(2)})


def test_without_check_nothing_is_marked_as_agreed(sim):
    result = compare({"a": sim.alternative("a", 1.0, 1), "b": sim.alternative("b", 1.0, 2)}, check=False)
    assert not result["a"].agreed


def test_an_alternative_that_raises_is_named():
    with pytest.raises(MeasureError) as caught:
        compare({"good": lambda: 1, "bad": lambda: [][0]})
    message = str(caught.value)
    assert "the alternative 'bad' raised IndexError" in message
    assert "test_comparison.py, line" in message
    assert isinstance(caught.value.__cause__, IndexError)


@pytest.mark.parametrize(
    ("alternatives", "options", "message"),
    [
        ({}, {}, "nothing to compare"),
        ({"a": 3}, {}, "nothing to compare"),
        ({"a": int}, {"rounds": 20}, "too few rounds"),
        ({"a": int}, {"baseline": "b"}, "baseline"),
        ({"a": int}, {"cache": "cold"}, "state of the caches"),
        ({"a": int}, {"shortest": -1.0}, "shortest"),
        ({"a": int}, {"flops": {"b": 1.0}}, "unknown alternative in `flops`"),
        ({"a": int}, {"threads": 0}, "number of threads"),
        ({"a": object}, {}, "not an array"),
    ],
)
def test_invalid_arguments_are_refused(alternatives, options, message):
    with pytest.raises(MeasureError, match=message):
        compare(alternatives, **options)


def test_jax_is_waited_for():
    @jax.jit
    def heavy(x):
        return jax.lax.fori_loop(0, 20, lambda _, y: y @ y / 100.0, x)

    x = jnp.ones((100, 100))
    result = compare({"jax": lambda: heavy(x), "numpy": lambda: np.ones((100, 100))}, rtol=1.0)
    assert result["jax"].median > 0
    assert result.machine["cpu"]


def test_libraries_that_threads_does_not_set_are_noted(sim, monkeypatch):
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    alternatives = {"a": sim.alternative("a", 1.0)}
    assert "JAX" in compare(alternatives, threads=1).note()
    assert compare(alternatives).unfixed == []


def test_a_comparison_is_displayed(sim):
    draw = random.Random(0)
    result = compare(
        {"<a>": sim.alternative("a", lambda: draw.uniform(1, 2)), "b": sim.alternative("b", 1e-5)},
        threads=1,
    )
    assert result["<a>"].median == statistics.median(result["<a>"].seconds)
    assert "&lt;a&gt;" in result._repr_html_()
    assert "threads 1" in str(result)
    assert "21 rounds in random order" in repr(result)
    with pytest.raises(MeasureError, match="not measured"):
        result["c"]


@pytest.mark.skipif(sys.platform == "win32", reason="Windows has no count")
def test_memory_that_is_new_is_counted_when_it_is_first_written():
    def pages():
        before = comparison.page_faults()
        memory[:: mmap.PAGESIZE] = written
        return comparison.page_faults() - before

    count = 1000
    memory, written = mmap.mmap(-1, count * mmap.PAGESIZE), bytes(count)
    assert pages() >= count > pages()
