from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed, close
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.tables import check_remeasured_claims
from mlhood.grading.checks.timing import TimedCall, TimingClaim
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.measure.ratio import Ratio

LARGE, SMALL = Ratio(25.0, 24.0, 26.0), Ratio(1.2, 1.1, 1.3)


class Clock:
    """A clock that only the functions below advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def doubling(self, seconds) -> object:
        """A function that doubles, and takes the next of these times."""
        durations = iter(seconds if isinstance(seconds, list) else [])

        def function(x):
            self.now += next(durations, None) or (seconds[-1] if isinstance(seconds, list) else seconds)
            return 2 * x

        return function


def timed(name: str) -> TimedCall:
    def check(arguments, result, rng):
        close(result, 2 * arguments[0], f"what `{name}` returns")

    return TimedCall(name, lambda rng: (rng.standard_normal(4),), check)


def claim(claimed: Ratio = LARGE, repetitions: int = 1) -> TimingClaim:
    fast = replace(timed("fast"), repetitions=repetitions)
    return TimingClaim("slow over fast", timed("slow"), fast, timed("reference"), claimed)


@pytest.fixture
def clock():
    return Clock()


@pytest.fixture
def names(clock):
    """Functions that take time on this clock only."""
    return {"slow": clock.doubling(0.1), "fast": clock.doubling(0.004), "reference": clock.doubling(0.005)}


@pytest.fixture
def submission(names, tmp_path, monkeypatch, clock):
    """A submission of these functions; each round trip takes 10 ms."""
    transport = LocalTransport(names)
    send = transport.send

    def timed_send(request, seconds):
        clock.now += 0.01
        return send(request, seconds)

    monkeypatch.setattr(transport, "send", timed_send)
    return Submission(Session(transport, tmp_path, tmp_path))


@pytest.fixture
def default_clock(clock, monkeypatch):
    monkeypatch.setitem(timing.measure_claim.__kwdefaults__, "clock", clock)


def test_a_right_claim_holds_after_the_first_rounds(submission, clock):
    verdict = timing.measure_claim(submission, claim(), clock=clock)
    assert verdict.state == "holds"
    # 100 ms over 7: of the 14 ms of the fast call, the round trip of 10 ms takes off no more than half
    assert "14.29 [14.29, 14.29] times as long when timed from outside, and 25.00 [24.00, 26.00] in" in verdict.reason
    assert clock.now < 1


def test_repeated_work_is_measured_despite_the_round_trip(submission, names, clock):
    names.update(fast=clock.doubling(8 * 0.004))
    verdict = timing.measure_claim(submission, claim(repetitions=8), clock=clock)
    assert verdict.state == "holds"
    assert verdict.ratio.value == pytest.approx(25)


@pytest.mark.parametrize(("factor", "state"), [(0.1, "holds"), (1, "holds"), (3, "holds"), (10, "fails")])
def test_a_scaled_ratio_fails_only_if_it_becomes_larger(factor, state, submission, names, clock):
    names.update(fast=clock.doubling(8 * 0.004))
    claimed = Ratio(25.0 * factor, 24.0 * factor, 26.0 * factor)
    assert timing.measure_claim(submission, claim(claimed, repetitions=8), clock=clock).state == state


def test_compilation_at_the_first_call_is_not_measured(submission, names, clock):
    names.update(fast=clock.doubling([30.0] + [0.004] * 99))
    assert timing.measure_claim(submission, claim(), clock=clock).state == "holds"
    assert clock.now < 31


@pytest.mark.parametrize(("fast", "state"), [(0.12, "inconclusive"), (0.13, "fails")])
def test_a_ratio_near_one_has_to_be_missed_clearly(fast, state, submission, names, clock):
    names.update(fast=clock.doubling(fast))
    assert timing.measure_claim(submission, claim(Ratio(1.1, 1.05, 1.15)), clock=clock).state == state


def test_a_reversed_claim_fails(submission, names, clock):
    names.update(slow=clock.doubling(0.05), fast=clock.doubling(0.09))
    assert timing.measure_claim(submission, claim(SMALL), clock=clock).state == "fails"


def test_a_ratio_far_below_the_claimed_one_fails(submission, names, clock):
    names.update(fast=clock.doubling(0.1))
    verdict = timing.measure_claim(submission, claim(), clock=clock)
    assert verdict.state == "fails"
    assert "1.00 [1.00, 1.00]" in verdict.reason


def test_a_small_ratio_that_the_round_trip_hides_is_inconclusive(submission, names, clock):
    names.update(slow=clock.doubling(0.1), fast=clock.doubling(0.103))
    assert timing.measure_claim(submission, claim(SMALL), clock=clock).state == "inconclusive"


def test_noise_is_inconclusive_after_a_few_measurements_and_gets_a_note(submission, names, clock, default_clock):
    names.update(slow=clock.doubling([0.1, 0.001] * 20), fast=clock.doubling([0.02, 0.09, 0.01] * 20))
    check_remeasured_claims(submission, [claim(SMALL)], "not faster", "measure")
    assert len(submission.notes) == 1
    assert submission.notes[0].startswith("inconclusive: slow over fast: ")
    assert submission.notes[0].endswith("measured again, and it costs no points")


def test_an_open_claim_is_measured_again_even_if_the_time_is_used_up(submission, names, clock):
    calls, fast = [], clock.doubling(0.103)
    names["fast"] = lambda x: calls.append(x) or fast(x)
    timing.measure_claim(submission, claim(SMALL), seconds=0, clock=clock)
    rounds = 1 + timing.FIRST_ROUNDS + timing.ROUNDS
    assert len(calls) == rounds


def test_an_understated_ratio_gets_a_note_and_costs_nothing(submission, default_clock):
    check_remeasured_claims(submission, [claim(Ratio(2.5, 2.4, 2.6))], "not faster", "measure")
    assert "understates the ratio: slow over fast" in submission.notes[0]
    assert submission.notes[0].endswith("it costs no points")


class FakeThreads:
    """Counts in `limited` how often the threads are limited now."""

    def __init__(self, limited):
        self.limited = limited
        limited.append(1)

    def restore(self):
        self.limited.clear()


@pytest.fixture
def limited(monkeypatch):
    limited = []
    monkeypatch.setattr("mlhood.grading.checks.probes.single_thread", lambda: FakeThreads(limited))
    return limited


def test_a_claim_holds_if_it_does_with_the_threads_of_the_process(submission, names, clock, limited, default_clock):
    """The table may have been measured with as many; with one thread it fails first."""
    names["fast"] = lambda x: (clock.doubling(0.1) if limited else clock.doubling(0.004))(x)
    check_remeasured_claims(submission, [claim()], "not faster", "measure")
    assert not submission.notes


def test_threads_are_restored_whatever_a_claim_does(submission, names, limited):
    names["fast"] = lambda x: 3 * x
    with pytest.raises(CheckFailed, match="wrong values"):
        check_remeasured_claims(submission, [claim()], "not faster", "measure")
    assert limited == []


def test_claims_are_measured_in_random_order_if_there_is_no_time_for_all(submission, monkeypatch):
    """So a submission cannot know which row is measured."""
    monkeypatch.setattr(timing, "TABLE_SECONDS", 0.0)
    measured = set()

    def measure_claim(_, claim, **options):
        measured.add(claim.name)
        return timing.Verdict("holds", "", LARGE)

    monkeypatch.setattr(timing, "measure_claim", measure_claim)
    claims = [replace(claim(), name=name) for name in "abcd"]
    for seed in range(20):
        before = len(measured)
        context = CheckContext(np.random.default_rng(seed))
        check_remeasured_claims(Submission(submission.session, context), claims, "not faster", "measure")
        assert len(measured) <= before + 1
    assert measured == set("abcd")


def test_one_failure_is_not_enough(submission, names, clock):
    rounds = 1 + timing.FIRST_ROUNDS + timing.ROUNDS
    names.update(fast=clock.doubling([0.2] * rounds + [0.004] * 99))
    assert timing.measure_claim(submission, claim(SMALL), clock=clock).state == "holds"


def test_being_slow_does_not_help(submission, names, clock):
    names.update(slow=clock.doubling(50), fast=clock.doubling(90))
    assert timing.measure_claim(submission, claim(SMALL), clock=clock).state == "fails"


def test_a_slow_empty_call_does_not_help(submission, names, clock, monkeypatch):
    def slow_empty_call(shape, *arguments):
        clock.now += 5
        return np.zeros(shape)

    monkeypatch.setattr("mlhood.grading.checks.probes.empty_call", slow_empty_call)
    names.update(fast=clock.doubling(0.1))
    assert timing.measure_claim(submission, claim(), clock=clock).state == "fails"


def test_a_reference_that_is_sometimes_slow_does_not_help(submission, names, clock):
    names.update(fast=clock.doubling(0.2), reference=clock.doubling([0.005, 9] * 50))
    calls = {"slow": timed("slow"), "fast": timed("fast")}
    seconds = timing.time_calls(submission, calls, timed("reference"), clock=clock)
    assert 1 <= len(seconds["slow"]) <= timing.ROUNDS
    assert timing.measure_claim(submission, claim(), clock=clock).state == "fails"


def test_disturbed_rounds_do_not_count(submission, names, clock):
    names.update(reference=clock.doubling([0.005] * 4 + [1.0] + [0.005] * 9))
    seconds = timing.time_calls(submission, {"slow": timed("slow")}, timed("reference"), clock=clock)
    assert {name: len(times) for name, times in seconds.items()} == {"slow": 4, "reference": 4, "empty": 4}


def test_no_argument_is_sent_twice(submission, names, clock):
    sent = []
    names["fast"] = lambda x: sent.append(x.tobytes()) or 2 * x
    names["slow"] = names["fast"]
    calls = {"slow": timed("slow"), "fast": timed("fast")}
    timing.time_calls(submission, calls, timed("reference"), clock=clock)
    assert len(set(sent)) == len(sent) == 2 * timing.ROUNDS


def test_a_replayed_result_fails(submission, names, clock):
    cache = {}
    names["fast"] = lambda x: cache.setdefault("result", 2 * x)
    with pytest.raises(CheckFailed, match="wrong values in what `fast` returns"):
        timing.measure_claim(submission, claim(), clock=clock)


def test_a_failing_claim_fails_the_check_with_its_reason(submission, names, clock, default_clock):
    names.update(fast=clock.doubling(0.1))
    with pytest.raises(CheckFailed, match="not faster") as caught:
        check_remeasured_claims(submission, [claim()], "`fast` is not faster", "measure")
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


def test_patched_timers_and_lazy_results_do_not_deceive_the_clock(tmp_path):
    with Kernel(tmp_path) as kernel:
        assert kernel.run(new_code_cell(HOSTILE), 30).error == ""
        submission = Submission(Session(kernel, kernel.folder, kernel.scratch))
        calls = {name: timed(name) for name in ("slow", "late", "fast")}
        seconds = timing.time_calls(submission, calls, timed("fast"), rounds=2)
    assert min(seconds["slow"] + seconds["late"]) > 0.15
