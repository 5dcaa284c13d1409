from __future__ import annotations

import itertools
import re
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from nbformat.v4 import new_code_cell

from mlhood.grading.checks import timing
from mlhood.grading.checks.expect import CheckFailed, CheckUndecided, close
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.checks.tables import check_remeasured_claims
from mlhood.grading.checks.task import Check, Task
from mlhood.grading.checks.timing_verdict import (
    ALLOWANCE,
    CourseVersion,
    Prepared,
    Rounds,
    TimedCall,
    TimingClaim,
    decide,
)
from mlhood.grading.execution.kernel import Kernel
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.measure.ratio import Ratio
from tests.waiting import PATIENCE

CALLS = 4
LARGE, SMALL = Ratio(25.0, 24.0, 26.0), Ratio(1.2, 1.1, 1.3)


class Clock:
    """A clock that only the functions below advance."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now

    def doubling(self, seconds):
        """A function that doubles once per call, and takes the next of these times for all calls of a message."""
        durations = iter(seconds if isinstance(seconds, list) else [])

        def function(x, calls=1):
            self.now += calls * (next(durations, None) or (seconds[-1] if isinstance(seconds, list) else seconds))
            return 2 * x

        return function


def timed(name: str, calls: int = CALLS) -> TimedCall:
    def prepare(submission, calls):
        x = submission.rng.standard_normal(4)
        return Prepared((x, calls), lambda result: close(result, 2 * x, f"what `{name}` returns"))

    return TimedCall(name, prepare, calls)


def claim(claimed: Ratio = LARGE, course: CourseVersion | None = None) -> TimingClaim:
    return TimingClaim("slow over fast", timed("slow"), timed("fast"), claimed, course)


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "clock_of", lambda submission: clock)
    monkeypatch.setattr(timing, "course_clock", clock)
    return clock


@pytest.fixture
def names(clock):
    """Functions that take time on this clock only."""
    return {"slow": clock.doubling(0.25), "fast": clock.doubling(0.01)}


@pytest.fixture
def submission(names, tmp_path, monkeypatch, clock):
    """A submission of these functions; each round trip takes 0.1 ms."""
    transport = LocalTransport(names)
    send = transport.send

    def timed_send(request, seconds):
        clock.now += 0.0001
        return send(request, seconds)

    monkeypatch.setattr(transport, "send", timed_send)
    return Submission(Session(transport, tmp_path, tmp_path))


@pytest.fixture(autouse=True)
def waited(monkeypatch):
    """One entry for each time that the grader waited for a quiet machine."""
    waited = []
    monkeypatch.setattr(timing, "wait_until_quiet", lambda: waited.append(1))
    return waited


@pytest.fixture
def default_clock(clock, monkeypatch):
    monkeypatch.setitem(timing.measure_claim.__kwdefaults__, "clocks")


def scaled(ratio: Ratio, factor: float) -> Ratio:
    return Ratio(ratio.value * factor, ratio.low * factor, ratio.high * factor)


def test_a_right_claim_holds_after_the_first_rounds(submission, clock, waited):
    verdict = timing.measure_claim(submission, claim())
    assert verdict.state == "holds"
    assert verdict.ratio.value == pytest.approx(25, rel=0.01)
    assert "24.94 [24.94, 24.94] times as long when timed from outside, and 25.00 [24.00, 26.00] in" in verdict.reason
    assert not waited


@pytest.mark.parametrize("round_trip", [0.0001, 0.01, 1.0])
@pytest.mark.parametrize("claimed", [1.02, 1.3, 7.0])
def test_identical_functions_have_the_ratio_one(claimed, round_trip, names, tmp_path, monkeypatch, clock):
    """However long the round trip is, and whatever the table claims."""
    names.update(slow=clock.doubling(0.003), fast=clock.doubling(0.003))
    transport = LocalTransport(names)
    send = transport.send

    def timed_send(request, seconds):
        clock.now += round_trip
        return send(request, seconds)

    monkeypatch.setattr(transport, "send", timed_send)
    submission = Submission(Session(transport, tmp_path, tmp_path))
    table = Ratio(claimed, claimed * 0.99, claimed * 1.01)
    verdict = timing.measure_claim(submission, claim(table))
    assert verdict.ratio.value == pytest.approx(1)
    assert verdict.state == ("inconclusive" if claimed < ALLOWANCE else "fails")


@pytest.mark.parametrize(
    ("factor", "state"), [(0.1, "holds"), (1, "holds"), (1.2, "holds"), (1.5, "fails"), (3, "fails"), (10, "fails")]
)
def test_a_scaled_ratio_fails_only_if_it_becomes_larger(factor, state, submission, clock):
    assert timing.measure_claim(submission, claim(scaled(LARGE, factor))).state == state


def test_an_empty_call_that_is_slowed_down_gains_nothing(submission, names, clock, monkeypatch):
    def slow_empty_call(size):
        clock.now += 5
        return np.zeros(size)

    monkeypatch.setattr("mlhood.grading.checks.probes.empty_call", slow_empty_call)
    names.update(slow=clock.doubling(0.25), fast=clock.doubling(0.1))
    verdict = timing.measure_claim(submission, claim())
    assert verdict.state == "fails"
    assert verdict.ratio.value == pytest.approx(2.5, rel=0.01)


def rounds_of(slow: list[float], fast: list[float]) -> Rounds:
    return Rounds(slow, fast)


def test_noise_does_not_confirm_a_claim():
    """A comparison so uncertain that it is compatible with the table is also compatible with much less."""
    rounds = rounds_of([2.0, 8.0, 4.0, 20.0, 1.5, 3.0], [1.0, 1.1, 0.9, 1.0, 1.0, 1.0])
    assert decide(rounds, claim(Ratio(4.0, 3.9, 4.1))).state == "inconclusive"
    assert decide(rounds, claim(Ratio(4.0, 1.2, 40.0))).state == "inconclusive"


def test_an_open_claim_leaves_its_check_alone_undecided(submission, names, clock, waited):
    names.update(slow=clock.doubling(0.1), fast=clock.doubling(0.1))

    def faster(submission):
        check_remeasured_claims(submission, lambda: [claim(Ratio(1.05, 1.04, 1.06))], "not faster", "measure")

    task = Task("T.1", "a race", (Check("faster", "", 2.0, faster), Check("other", "", 1.0, lambda submission: None)))
    result = grade_task(task, submission.session, 1)
    assert "measured several times, and still undecided: slow over fast: 1.00" in result.checks[0].what
    assert [check.status for check in result.checks] == ["undecided", "passed"]
    assert (result.earned, result.points, result.undecided) == (1, 3, True)
    assert len(waited) == timing.ATTEMPTS - 1


@pytest.mark.parametrize(("table", "refused"), [(0.95, False), (0.5, True)])
def test_a_table_with_the_slower_side_ahead(table, refused, submission, names, clock):
    """Within the allowance that may be noise, and is undecided; beyond it, the table is wrong."""
    names.update(slow=clock.doubling(0.113), fast=clock.doubling(0.1))
    outcome = CheckFailed if refused else CheckUndecided
    ratio = Ratio(table, 0.99 * table, 1.01 * table)
    with pytest.raises(outcome, match=r"slow over fast: 1\.13|do not differ as your functions do"):
        check_remeasured_claims(submission, lambda: [claim(ratio)], "not faster", "measure")


def test_an_understated_ratio_gets_a_note_and_costs_nothing(submission):
    check_remeasured_claims(submission, lambda: [claim(Ratio(2.5, 2.4, 2.6))], "not faster", "measure")
    assert "understates the ratio: slow over fast" in submission.notes[0]
    assert submission.notes[0].endswith("it costs no points")


@pytest.mark.parametrize(("slow", "lost"), [(0.25, False), (2.5, True), (60.0, True)])
def test_a_slower_side_that_is_slow_on_purpose_fails(slow, lost, submission, names, clock):
    """The course's version takes 30 ms for a call. The table is honest: the faster side is as much faster."""
    names.update(slow=clock.doubling(slow))
    course = CourseVersion("no-BLAS convolution", lambda: clock.doubling(0.3)(np.ones(1)), most=9.0, calls=10)
    honest = claim(scaled(LARGE, slow / 0.25), course)
    if not lost:
        check_remeasured_claims(submission, lambda: [honest], "not faster", "measure")
        return
    with pytest.raises(CheckFailed) as caught:
        check_remeasured_claims(submission, lambda: [honest], "not faster", "measure")
    sentence = "your no-BLAS convolution takes (.*) times as long as the course's own version of the same algorithm; "
    matched = re.fullmatch(f"{sentence}at most 9 is allowed", caught.value.what)
    assert matched
    assert float(matched[1]) == pytest.approx(slow / 0.03, rel=0.02)


def test_threads_are_restored_whatever_a_claim_does(submission, names, monkeypatch):
    limited = []
    fake = SimpleNamespace(restore=limited.clear)
    monkeypatch.setattr("mlhood.grading.checks.probes.single_thread", lambda: limited.append(1) or fake)
    names["fast"] = lambda x, calls: 3 * x
    with pytest.raises(CheckFailed, match="wrong values"):
        check_remeasured_claims(submission, lambda: [claim()], "not faster", "measure")
    assert limited == []


@pytest.mark.parametrize(
    ("table", "state"),
    [
        (Ratio(1.0, 0.98, 1.02), "fails"),  # both columns time the same function
        (Ratio(10.0, 0.9, 30.0), "holds"),
        (Ratio(9.0, 0.9, 20.0), "inconclusive"),
    ],
)
def test_a_table_that_shows_no_difference_is_compared_with_the_graders(table, state, submission, clock):
    assert timing.measure_claim(submission, claim(table)).state == state


@pytest.mark.parametrize(("table", "state"), [(1.0, "holds"), (1.3, "holds"), (2.0, "fails")])
@pytest.mark.parametrize("fast", [0.09, 0.1, 0.11])
def test_a_claim_without_a_direction_is_about_the_ratio_alone(fast, table, state, submission, names, clock):
    names.update(slow=clock.doubling(0.1), fast=clock.doubling(fast))
    undirected = replace(claim(Ratio(table, 0.9 * table, 1.1 * table)), directed=False)
    assert timing.measure_claim(submission, undirected).state == state


def test_claims_are_measured_once_for_all_checks_of_a_table(submission, monkeypatch):
    measured = []
    failed = timing.TimingVerdict("fails", "", LARGE)
    monkeypatch.setattr(timing, "measure_claim", lambda *_: measured.append(1) or failed)
    for _ in range(2):
        with pytest.raises(CheckFailed, match="not faster"):
            check_remeasured_claims(submission, lambda: [claim()], "not faster", "measure")
    assert measured == [1]


def test_claims_are_measured_in_random_order_if_there_is_no_time_for_all(submission, monkeypatch):
    """So a submission cannot know which row is measured."""
    monkeypatch.setattr(timing, "TABLE_SECONDS", 0.0)
    measured = set()

    def measure_claim(_, claim, **options):
        measured.add(claim.name)
        return timing.TimingVerdict("holds", "", LARGE)

    monkeypatch.setattr(timing, "measure_claim", measure_claim)
    claims = [replace(claim(), name=name) for name in "abcd"]
    for seed in range(20):
        before = len(measured)
        context = CheckContext(np.random.default_rng(seed))
        check_remeasured_claims(Submission(submission.session, context), lambda: claims, "not faster", "measure")
        assert len(measured) <= before + 1
    assert measured == set("abcd")


def test_one_refusal_is_not_enough(submission, names, clock, waited):
    rounds = 1 + timing.REFUSAL
    names.update(fast=clock.doubling([0.5] * rounds + [0.01] * 99))
    assert timing.measure_claim(submission, claim()).state == "holds"
    assert len(waited) == 1


def test_a_replayed_result_fails(submission, names, clock):
    cache = {}
    names["fast"] = lambda x, calls: cache.setdefault("result", 2 * x).copy()
    with pytest.raises(CheckFailed, match="wrong values in what `fast` returns"):
        timing.measure_claim(submission, claim())


HOSTILE = """
import threading, time
time.perf_counter = time.monotonic = time.time = lambda: 0.0

def slow(x, calls=1):
    until = time.thread_time() + 0.15
    while time.thread_time() < until:
        pass
    return 2 * x

def late(x, calls=1):
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

def fast(x, calls=1):
    return 2 * x
"""


def test_patched_timers_and_lazy_results_do_not_deceive_the_clock(tmp_path, monkeypatch):
    monkeypatch.setattr(timing, "wait_until_quiet", lambda: None)
    rounds, ticks = Rounds(), itertools.count()
    with Kernel(tmp_path) as kernel:
        assert kernel.run(new_code_cell(HOSTILE), PATIENCE).error == ""
        submission = Submission(Session(kernel, kernel.folder, kernel.scratch))
        race = TimingClaim("slow over late", timed("slow"), timed("late"), SMALL)
        timing.time_rounds(submission, race, rounds, 2)
        same = TimingClaim("fast over fast", timed("fast"), timed("fast"), SMALL)
        # through the real transport, with messages that take a second each
        monkeypatch.setattr(timing, "clock_of", lambda submission: ticks.__next__)
        verdict = timing.measure_claim(submission, same)
    assert min(rounds.slow + rounds.fast) > 0.15
    assert verdict.state != "holds"
