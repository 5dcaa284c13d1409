"""Comparing, on a clock that the test moves: what is told is exactly what happened."""

import json
import random
import statistics

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.errors import MeasureError
from mlhood.measure import compare
from mlhood.measure.comparison import MOST_TRIES, switched_out
from mlhood.measure.result import Comparison


class World:
    """A clock, and alternatives that move it."""

    def __init__(self):
        self.now = 0.0
        self.calls = []
        self.switches = 0

    def clock(self):
        return self.now

    def interruptions(self):
        return self.switches

    def alternative(self, name, lasts, result=0.0):
        def call():
            self.calls.append(name)
            self.now += lasts() if callable(lasts) else lasts
            return result

        return call

    def compare(self, alternatives, **options):
        fixed = {"clock": self.clock, "interruptions": self.interruptions, "describe_machine": False}
        return compare(alternatives, **(fixed | options))


@pytest.fixture
def world():
    return World()


def test_medians_and_ratios_are_exact(world):
    found = world.compare({"a": world.alternative("a", 0.25), "b": world.alternative("b", 0.5)}, flops=1e9)
    assert found["a"].seconds == (0.25,) * 21
    assert found.repeats == {"a": 1, "b": 1}
    assert (found.ratio("b", "a").value, found.ratio("b").low, found.speedup("b").high) == (2.0, 2.0, 0.5)
    assert found["b"].flops_per_second == 2e9
    assert found["a"].agreed


def test_each_round_calls_all_in_an_order_of_its_own(world):
    world.compare({name: world.alternative(name, 1.0) for name in "abc"}, rounds=30)
    timed = world.calls[-90:]
    rounds = [tuple(timed[i : i + 3]) for i in range(0, 90, 3)]
    assert all(sorted(one) == ["a", "b", "c"] for one in rounds)
    assert len(set(rounds)) == 6


def test_the_seed_chooses_the_orders(world):
    def calls(seed):
        world.calls.clear()
        world.compare({name: world.alternative(name, 1.0) for name in "abc"}, seed=seed)
        return list(world.calls)

    assert calls(1) == calls(1)
    assert calls(1) != calls(2)


def test_a_machine_that_slows_down_does_not_move_the_ratio(world):
    speed = {"now": 1.0}

    def slower(lasts):
        def duration():
            speed["now"] *= 1.001
            return lasts * speed["now"]

        return duration

    found = world.compare({"a": world.alternative("a", slower(1.0)), "b": world.alternative("b", slower(3.0))})
    assert found["a"].seconds[-1] > 1.03 * found["a"].seconds[0]
    assert found.ratio("b").value == pytest.approx(3.0, rel=2e-3)
    assert found.ratio("b").high / found.ratio("b").low < 1.0025


def test_outliers_do_not_matter(world):
    draw = random.Random(0)

    def noisy():
        return 100.0 if draw.random() < 0.15 else draw.uniform(0.99, 1.01)

    found = world.compare({"a": world.alternative("a", noisy), "b": world.alternative("b", lambda: 2 * noisy())})
    assert found.ratio("b").value == pytest.approx(2.0, rel=0.02)


def test_short_calls_are_repeated_until_the_clock_can_see_them(world):
    found = world.compare({"a": world.alternative("a", 1e-6), "b": world.alternative("b", 1e-2)}, shortest=1e-3)
    assert found.repeats["b"] == 1
    assert 1000 <= found.repeats["a"] <= 1600
    assert found["a"].median == pytest.approx(1e-6)


def test_a_clock_that_stands_still_is_told(world):
    with pytest.raises(MeasureError, match="clock did not move"):
        world.compare({"a": world.alternative("a", 0.0)}, shortest=0)


def test_the_first_call_is_told_apart(world):
    lasts = iter([5.0])
    found = world.compare({"a": world.alternative("a", lambda: next(lasts, 1.0))})
    assert found.first == {"a": 5.0}
    assert set(found["a"].seconds) == {1.0}


def test_hot_means_called_just_before(world):
    cold = []

    def a():
        world.calls.append("a")
        world.now += 1.0 if world.calls[-2:-1] == ["a"] else 2.0

    def b():
        world.calls.append("b")
        world.now += 1.0

    for cache, expected in (("interleaved", 1.0), ("hot", 1.0)):
        found = world.compare({"a": a, "b": b}, cache=cache, check=False)
        cold.append(max(found["a"].seconds))
        assert min(found["a"].seconds) == expected
    assert cold == [2.0, 1.0]


def test_a_round_that_was_interrupted_is_measured_again(world):
    count = iter(range(1000))

    def sometimes():
        if next(count) % 3 == 0:
            world.switches += 1
            return 0.011
        return 0.001

    found = world.compare({"a": world.alternative("a", sometimes), "b": world.alternative("b", 0.001)})
    assert found["a"].seconds == pytest.approx([0.001] * 21)
    assert found.interrupted == 0


def test_tries_are_few_and_the_least_disturbed_counts(world):
    timed = []

    def always():
        lasts = 0.001 * (1 + len(timed) % MOST_TRIES)
        world.switches += 1 + len(timed) % MOST_TRIES
        timed.append(lasts)
        return lasts

    found = world.compare({"a": world.alternative("a", always)})
    assert len(timed) <= 21 * MOST_TRIES + 10
    assert found.interrupted == 21
    assert "21 rounds interrupted" in found.note()
    assert found["a"].seconds == pytest.approx([0.001] * 21)


def test_long_rounds_are_measured_once(world):
    def always():
        world.switches += 1
        return 1.0

    world.compare({"a": world.alternative("a", always)})
    assert len(world.calls) == 21 + 1 + 2 + 1


def test_an_alternative_that_disagrees_is_named(world):
    with pytest.raises(MeasureError, match="disagree") as found:
        world.compare({"a": world.alternative("a", 1.0, np.zeros(3)), "b": world.alternative("b", 1.0, np.ones(3))})
    assert "'b' against 'a'" in str(found.value)


def test_the_baseline_is_right_wherever_it_stands(world):
    alternatives = {"a": world.alternative("a", 1.0, 1), "b": world.alternative("b", 1.0, 2)}
    with pytest.raises(MeasureError, match="disagree") as found:
        world.compare(alternatives, baseline="b")
    assert "'a' against 'b'" in str(found.value)


def test_alternatives_that_share_a_buffer_are_told_apart(world):
    buffer = np.zeros(3)

    def fill(value):
        def call():
            world.now += 1.0
            buffer[:] = value
            return buffer

        return call

    with pytest.raises(MeasureError, match="disagree"):
        world.compare({"a": fill(1), "b": fill(2)})


def test_without_check_nothing_counts_as_agreed(world):
    found = world.compare({"a": world.alternative("a", 1.0, 1), "b": world.alternative("b", 1.0, 2)}, check=False)
    assert not found["a"].agreed


def test_an_alternative_that_raises_is_named():
    with pytest.raises(MeasureError) as found:
        compare({"good": lambda: 1, "bad": lambda: [][0]})
    said = str(found.value)
    assert "the alternative 'bad' raised IndexError" in said
    assert "test_comparison.py, line" in said
    assert isinstance(found.value.__cause__, IndexError)


@pytest.mark.parametrize(
    ("alternatives", "options", "message"),
    [
        ({}, {}, "nothing to compare"),
        ({"a": 3}, {}, "nothing to compare"),
        ({"a": int}, {"rounds": 20}, "say little"),
        ({"a": int}, {"baseline": "b"}, "baseline"),
        ({"a": int}, {"cache": "cold"}, "state of the caches"),
        ({"a": int}, {"shortest": -1.0}, "shortest"),
        ({"a": int}, {"flops": {"b": 1.0}}, "operations"),
        ({"a": int}, {"threads": 0}, "number of threads"),
        ({"a": object}, {}, "no array"),
    ],
)
def test_requests_that_make_no_sense_are_refused(alternatives, options, message):
    with pytest.raises(MeasureError, match=message):
        compare(alternatives, **options)


def test_jax_is_waited_for():
    @jax.jit
    def heavy(x):
        return jax.lax.fori_loop(0, 20, lambda _, y: y @ y / 100.0, x)

    x = jnp.ones((100, 100))
    found = compare({"jax": lambda: heavy(x), "numpy": lambda: np.ones((100, 100))}, rtol=1.0)
    assert found["jax"].median > 0
    assert found.machine["cpu"]


def test_what_threads_do_not_reach_is_said(world, monkeypatch):
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    alternatives = {"a": world.alternative("a", 1.0)}
    assert "JAX" in world.compare(alternatives, threads=1).note()
    assert world.compare(alternatives).unfixed == []


def test_a_comparison_survives_json_and_shows_itself(world):
    draw = random.Random(0)
    found = world.compare(
        {"<a>": world.alternative("a", lambda: draw.uniform(1, 2)), "b": world.alternative("b", 1e-5)}, threads=1
    )
    again = Comparison.from_dict(json.loads(json.dumps(found.to_dict())))
    assert again == found
    assert again["<a>"].median == statistics.median(found["<a>"].seconds)
    assert "&lt;a&gt;" in found._repr_html_()
    assert "threads 1" in str(found)
    assert "21 rounds in random order" in repr(found)
    assert found.pairs().loc["b", "b"].value == 1.0
    with pytest.raises(MeasureError, match="not measured"):
        found["c"]


@pytest.mark.parametrize("change", [{"baseline": "x"}, {"measurements": {}}, {"first": []}, {"more": 1}])
def test_what_is_no_comparison_is_refused(world, change):
    data = world.compare({"a": world.alternative("a", 1.0)}).to_dict()
    with pytest.raises(MeasureError):
        Comparison.from_dict({**data, **change})


def test_the_system_counts_interruptions():
    assert switched_out() >= 0
