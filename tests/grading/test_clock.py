from __future__ import annotations

import numpy as np
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading import clock
from mlhood.grading.clock import Race, Timed
from mlhood.grading.expect import CheckFailed, close
from mlhood.grading.kernel import Kernel
from mlhood.grading.projects.tables import check_by_the_clock
from mlhood.grading.submission import LocalTransport, Submission
from mlhood.measure.ratio import Ratio

MANY, FEW = Ratio(25.0, 24.0, 26.0), Ratio(1.2, 1.1, 1.3)


class Clock:
    """Stands still unless somebody works."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def doubling(self, seconds) -> object:
        """A function that doubles, and takes the next of these times."""
        lasts = iter(seconds if isinstance(seconds, list) else [])

        def function(x):
            self.now += next(lasts, None) or (seconds[-1] if isinstance(seconds, list) else seconds)
            return 2 * x

        return function


def timed(name: str) -> Timed:
    def check(arguments, result, rng):
        close(result, 2 * arguments[0], f"what `{name}` returns")

    return Timed(name, lambda rng: (rng.standard_normal(4),), check)


def a_race(told: Ratio = MANY) -> Race:
    return Race("slow over fast", timed("slow"), timed("fast"), timed("reference"), told)


@pytest.fixture
def hands():
    return Clock()


@pytest.fixture
def submission(tmp_path, monkeypatch, hands):
    """Of functions that take time on the clock only; the way there and back takes 10 ms."""
    names = {"slow": hands.doubling(0.1), "fast": hands.doubling(0.004), "reference": hands.doubling(0.005)}
    one = Submission(LocalTransport(names), tmp_path, tmp_path)
    ask = one.transport.ask

    def slowly(request, seconds):
        hands.now += 0.01
        return ask(request, seconds)

    monkeypatch.setattr(one.transport, "ask", slowly)
    one.names = names
    return one


def test_what_is_as_told_holds_at_first_sight(submission, hands):
    found = clock.race(submission, a_race(), clock=hands)
    assert found.state == "holds"
    assert "7.86 [7.86, 7.86]" in found.reason  # 110 over 14 ms, with the way
    assert hands.now < 1


def test_what_is_the_other_way_round_fails(submission, hands):
    submission.names.update(slow=hands.doubling(0.05), fast=hands.doubling(0.09))
    assert clock.race(submission, a_race(FEW), clock=hands).state == "fails"


def test_a_ratio_far_below_the_told_one_fails(submission, hands):
    submission.names.update(fast=hands.doubling(0.1))
    found = clock.race(submission, a_race(), clock=hands)
    assert found.state == "fails"
    assert "1.00 [1.00, 1.00]" in found.reason


def test_a_small_ratio_that_is_lost_on_the_way_is_inconclusive(submission, hands):
    submission.names.update(slow=hands.doubling(0.1), fast=hands.doubling(0.103))
    assert clock.race(submission, a_race(FEW), clock=hands).state == "inconclusive"


def test_noise_is_inconclusive_after_a_few_tries_and_is_noted(submission, hands, monkeypatch):
    submission.names.update(slow=hands.doubling([0.1, 0.001] * 20), fast=hands.doubling([0.02, 0.09, 0.01] * 20))
    monkeypatch.setattr(clock.race, "__kwdefaults__", {**clock.race.__kwdefaults__, "clock": hands})
    check_by_the_clock(submission, [a_race(FEW)], "not faster", "measure")
    assert len(submission.notes) == 1
    assert "inconclusive, and it costs nothing: slow over fast" in submission.notes[0]


def test_one_failure_is_not_enough(submission, hands):
    rounds = clock.FIRST_LOOK + clock.ROUNDS
    submission.names.update(fast=hands.doubling([0.2] * rounds + [0.004] * 99))
    assert clock.race(submission, a_race(FEW), clock=hands).state == "holds"


def test_being_slow_is_no_way_out(submission, hands):
    submission.names.update(slow=hands.doubling(50), fast=hands.doubling(90))
    assert clock.race(submission, a_race(FEW), clock=hands).state == "fails"


def test_an_empty_call_that_was_made_slow_does_not_help(submission, hands, monkeypatch):
    def slow_nothing(shape, *arguments):
        hands.now += 5
        return np.zeros(shape)

    monkeypatch.setattr("mlhood.grading.probes.nothing", slow_nothing)
    submission.names.update(fast=hands.doubling(0.1))
    assert clock.race(submission, a_race(), clock=hands).state == "fails"


def test_a_reference_that_is_slow_now_and_then_does_not_help(submission, hands):
    submission.names.update(fast=hands.doubling(0.2), reference=hands.doubling([0.005, 9] * 50))
    found = clock.remeasure(submission, {"slow": timed("slow"), "fast": timed("fast")}, timed("reference"), clock=hands)
    assert 1 <= len(found["slow"]) <= clock.ROUNDS
    assert clock.race(submission, a_race(), clock=hands).state == "fails"


def test_disturbed_rounds_do_not_count(submission, hands):
    submission.names.update(reference=hands.doubling([0.005] * 4 + [1.0] + [0.005] * 9))
    found = clock.remeasure(submission, {"slow": timed("slow")}, timed("reference"), clock=hands)
    assert {name: len(seconds) for name, seconds in found.items()} == {"slow": 4, "reference": 4, "empty": 4}


def test_no_argument_is_sent_twice(submission, hands):
    seen = []
    submission.names["fast"] = lambda x: seen.append(x.tobytes()) or 2 * x
    submission.names["slow"] = submission.names["fast"]
    clock.remeasure(submission, {"slow": timed("slow"), "fast": timed("fast")}, timed("reference"), clock=hands)
    assert len(set(seen)) == len(seen) == 2 * clock.ROUNDS


def test_a_result_that_is_replayed_fails(submission, hands):
    kept = {}
    submission.names["fast"] = lambda x: kept.setdefault("result", 2 * x)
    with pytest.raises(CheckFailed, match="wrong values in what `fast` returns"):
        clock.race(submission, a_race(), clock=hands)


def test_a_contradiction_fails_the_check_with_its_reason(submission, hands, monkeypatch):
    submission.names.update(fast=hands.doubling(0.1))
    monkeypatch.setattr(clock.race, "__kwdefaults__", {**clock.race.__kwdefaults__, "clock": hands})
    with pytest.raises(CheckFailed, match="not faster") as caught:
        check_by_the_clock(submission, [a_race()], "`fast` is not faster", "measure")
    assert "slow over fast: 1.00" in caught.value.parts["got"]


HOSTILE = """
import threading, time
time.perf_counter = time.monotonic = time.time = lambda: 0.0

def slow(x):
    until = time.process_time() + 0.15
    while time.process_time() < until:
        pass
    return 2 * x

def late(x):
    result = x * 0
    thread = threading.Thread(target=lambda: result.__iadd__(slow(x)))
    thread.start()
    return Later(thread, result)

class Later(list):
    def __init__(self, thread, result):
        self.thread, self.result = thread, result
    def __iter__(self):
        self.thread.join()
        return iter(self.result.tolist())

def fast(x):
    return 2 * x
"""


def test_patched_timers_and_late_results_do_not_get_past_the_clock(tmp_path):
    with Kernel(tmp_path) as kernel:
        assert kernel.run(new_code_cell(HOSTILE), 30).error == ""
        submission = Submission(kernel, kernel.folder, kernel.scratch)
        calls = {name: timed(name) for name in ("slow", "late", "fast")}
        found = clock.remeasure(submission, calls, timed("fast"), rounds=2)
    assert min(found["slow"] + found["late"]) > 0.15
