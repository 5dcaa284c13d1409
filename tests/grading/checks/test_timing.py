from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed, close
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.checks.tables import check_by_the_clock
from mlhood.grading.checks.timing import Race, Timed
from mlhood.grading.execution.kernel import Kernel
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


def a_race(told: Ratio = MANY, times: int = 1) -> Race:
    return Race("slow over fast", timed("slow"), replace(timed("fast"), times=times), timed("reference"), told)


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
    found = timing.race(submission, a_race(), clock=hands)
    assert found.state == "holds"
    # 100 ms over 7: of the faster call's 14 ms, 10 of which are the way, no more than half are taken off
    assert "14.29 [14.29, 14.29] times as long by the clock outside, and 25.00 [24.00, 26.00] in" in found.reason
    assert hands.now < 1


def test_work_that_is_done_several_times_stands_out_of_the_way(submission, hands):
    submission.names.update(fast=hands.doubling(8 * 0.004))
    found = timing.race(submission, a_race(times=8), clock=hands)
    assert found.state == "holds"
    assert found.ratio.value == pytest.approx(25)


@pytest.mark.parametrize(("factor", "state"), [(0.1, "holds"), (1, "holds"), (3, "holds"), (10, "fails")])
def test_a_ratio_that_was_multiplied_fails_if_that_makes_it_larger(factor, state, submission, hands):
    submission.names.update(fast=hands.doubling(8 * 0.004))
    told = Ratio(25.0 * factor, 24.0 * factor, 26.0 * factor)
    assert timing.race(submission, a_race(told, times=8), clock=hands).state == state


def test_what_is_compiled_at_its_first_call_is_not_measured_with_it(submission, hands):
    submission.names.update(fast=hands.doubling([30.0] + [0.004] * 99))
    assert timing.race(submission, a_race(), clock=hands).state == "holds"
    assert hands.now < 31


@pytest.mark.parametrize(("fast", "state"), [(0.12, "inconclusive"), (0.13, "fails")])
def test_a_ratio_near_one_has_to_be_missed_as_clearly(fast, state, submission, hands):
    submission.names.update(fast=hands.doubling(fast))
    assert timing.race(submission, a_race(Ratio(1.1, 1.05, 1.15)), clock=hands).state == state


def test_what_is_the_other_way_round_fails(submission, hands):
    submission.names.update(slow=hands.doubling(0.05), fast=hands.doubling(0.09))
    assert timing.race(submission, a_race(FEW), clock=hands).state == "fails"


def test_a_ratio_far_below_the_told_one_fails(submission, hands):
    submission.names.update(fast=hands.doubling(0.1))
    found = timing.race(submission, a_race(), clock=hands)
    assert found.state == "fails"
    assert "1.00 [1.00, 1.00]" in found.reason


def test_a_small_ratio_that_is_lost_on_the_way_is_inconclusive(submission, hands):
    submission.names.update(slow=hands.doubling(0.1), fast=hands.doubling(0.103))
    assert timing.race(submission, a_race(FEW), clock=hands).state == "inconclusive"


def test_noise_is_inconclusive_after_a_few_tries_and_is_noted(submission, hands, monkeypatch):
    submission.names.update(slow=hands.doubling([0.1, 0.001] * 20), fast=hands.doubling([0.02, 0.09, 0.01] * 20))
    monkeypatch.setattr(timing.race, "__kwdefaults__", {**timing.race.__kwdefaults__, "clock": hands})
    check_by_the_clock(submission, [a_race(FEW)], "not faster", "measure")
    assert len(submission.notes) == 1
    assert submission.notes[0].startswith("inconclusive: slow over fast: ")
    assert submission.notes[0].endswith("measured again, and it costs no points")


def test_an_open_claim_is_measured_again_even_if_the_time_is_used_up(submission, hands):
    calls, fast = [], hands.doubling(0.103)
    submission.names["fast"] = lambda x: calls.append(x) or fast(x)
    timing.race(submission, a_race(FEW), seconds=0, clock=hands)
    rounds = 1 + timing.FIRST_LOOK + timing.ROUNDS
    assert len(calls) == rounds


def test_a_table_that_tells_less_than_there_is_is_noted_and_loses_nothing(submission, hands, monkeypatch):
    monkeypatch.setattr(timing.race, "__kwdefaults__", {**timing.race.__kwdefaults__, "clock": hands})
    check_by_the_clock(submission, [a_race(Ratio(2.5, 2.4, 2.6))], "not faster", "measure")
    assert "less than there is: slow over fast" in submission.notes[0]
    assert submission.notes[0].endswith("it costs no points")


def test_a_claim_holds_if_it_does_with_the_threads_of_the_process(submission, hands, monkeypatch):
    """The table may have been measured with as many; with one thread it is contradicted first."""
    threads = []
    monkeypatch.setattr("mlhood.grading.checks.probes.one_thread", lambda: threads.append(1) or Fixed(threads))
    submission.names["fast"] = lambda x: (hands.doubling(0.1) if threads else hands.doubling(0.004))(x)
    monkeypatch.setattr(timing.race, "__kwdefaults__", {**timing.race.__kwdefaults__, "clock": hands})
    check_by_the_clock(submission, [a_race()], "not faster", "measure")
    assert not submission.notes


class Fixed:
    def __init__(self, threads):
        self.threads = threads

    def restore(self):
        self.threads.clear()


def test_threads_are_given_back_whatever_a_race_does(submission, monkeypatch):
    threads = []
    monkeypatch.setattr("mlhood.grading.checks.probes.one_thread", lambda: threads.append(1) or Fixed(threads))
    submission.names["fast"] = lambda x: 3 * x
    with pytest.raises(CheckFailed, match="wrong values"):
        check_by_the_clock(submission, [a_race()], "not faster", "measure")
    assert threads == []


def test_claims_are_drawn_where_there_is_no_time_for_all(submission, monkeypatch):
    """So nobody knows which row is looked at."""
    monkeypatch.setattr(timing, "TABLE_SECONDS", 0.0)
    seen = set()
    monkeypatch.setattr(timing, "race", lambda _, one, **__: seen.add(one.name) or timing.Verdict("holds", "", MANY))
    rows = [replace(a_race(), name=name) for name in "abcd"]
    for seed in range(20):
        submission.rng = np.random.default_rng(seed)
        before = len(seen)
        check_by_the_clock(submission, rows, "not faster", "measure")
        assert len(seen) <= before + 1
    assert seen == set("abcd")


def test_one_failure_is_not_enough(submission, hands):
    rounds = 1 + timing.FIRST_LOOK + timing.ROUNDS
    submission.names.update(fast=hands.doubling([0.2] * rounds + [0.004] * 99))
    assert timing.race(submission, a_race(FEW), clock=hands).state == "holds"


def test_being_slow_is_no_way_out(submission, hands):
    submission.names.update(slow=hands.doubling(50), fast=hands.doubling(90))
    assert timing.race(submission, a_race(FEW), clock=hands).state == "fails"


def test_an_empty_call_that_was_made_slow_does_not_help(submission, hands, monkeypatch):
    def slow_nothing(shape, *arguments):
        hands.now += 5
        return np.zeros(shape)

    monkeypatch.setattr("mlhood.grading.checks.probes.nothing", slow_nothing)
    submission.names.update(fast=hands.doubling(0.1))
    assert timing.race(submission, a_race(), clock=hands).state == "fails"


def test_a_reference_that_is_slow_now_and_then_does_not_help(submission, hands):
    submission.names.update(fast=hands.doubling(0.2), reference=hands.doubling([0.005, 9] * 50))
    found = timing.remeasure(
        submission, {"slow": timed("slow"), "fast": timed("fast")}, timed("reference"), clock=hands
    )
    assert 1 <= len(found["slow"]) <= timing.ROUNDS
    assert timing.race(submission, a_race(), clock=hands).state == "fails"


def test_disturbed_rounds_do_not_count(submission, hands):
    submission.names.update(reference=hands.doubling([0.005] * 4 + [1.0] + [0.005] * 9))
    found = timing.remeasure(submission, {"slow": timed("slow")}, timed("reference"), clock=hands)
    assert {name: len(seconds) for name, seconds in found.items()} == {"slow": 4, "reference": 4, "empty": 4}


def test_no_argument_is_sent_twice(submission, hands):
    seen = []
    submission.names["fast"] = lambda x: seen.append(x.tobytes()) or 2 * x
    submission.names["slow"] = submission.names["fast"]
    timing.remeasure(submission, {"slow": timed("slow"), "fast": timed("fast")}, timed("reference"), clock=hands)
    assert len(set(seen)) == len(seen) == 2 * timing.ROUNDS


def test_a_result_that_is_replayed_fails(submission, hands):
    kept = {}
    submission.names["fast"] = lambda x: kept.setdefault("result", 2 * x)
    with pytest.raises(CheckFailed, match="wrong values in what `fast` returns"):
        timing.race(submission, a_race(), clock=hands)


def test_a_contradiction_fails_the_check_with_its_reason(submission, hands, monkeypatch):
    submission.names.update(fast=hands.doubling(0.1))
    monkeypatch.setattr(timing.race, "__kwdefaults__", {**timing.race.__kwdefaults__, "clock": hands})
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
        found = timing.remeasure(submission, calls, timed("fast"), rounds=2)
    assert min(found["slow"] + found["late"]) > 0.15
