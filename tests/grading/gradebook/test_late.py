from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import GradingError
from mlhood.grading.gradebook.late import Deadline, parse_late_policy

DUE = datetime(2026, 10, 12, 21, 59, tzinfo=UTC)
POLICY = """
timezone = "Europe/Vienna"
grace_minutes = 15
penalty_per_day = 10
most = 50
[P1]
due = 2026-10-12T23:59:00
[P1.extensions]
ada = 2026-10-15T23:59:00
bob = 2
[P1.submitted]
eve = 2026-10-14T08:00:00
[P2]
due = 2026-11-01T12:00:00Z
penalty_per_day = 20
[P3]
"""


def minutes(number: float) -> datetime:
    return DUE + timedelta(minutes=number)


@pytest.mark.parametrize(
    ("student", "submitted", "days", "penalty"),
    [
        ("carl", minutes(-1), 0, 0),
        ("carl", minutes(0), 0, 0),
        ("carl", minutes(15), 0, 0),
        ("carl", minutes(15.1), 1, 0.1),
        ("carl", minutes(24 * 60), 1, 0.1),
        ("carl", minutes(24 * 60 + 1), 2, 0.2),
        ("carl", minutes(99 * 24 * 60), 99, 0.5),
        ("ada", minutes(3 * 24 * 60), 0, 0),
        ("ada", minutes(3 * 24 * 60 + 60), 1, 0.1),
        ("bob", minutes(2 * 24 * 60 + 15), 0, 0),
        ("bob", minutes(2 * 24 * 60 + 16), 1, 0.1),
        ("eve", None, 2, 0.2),
        ("carl", None, 0, 0),
    ],
)
def test_days_and_shares(student, submitted, days, penalty):
    lateness = parse_late_policy(POLICY, "late.toml")["P1"].lateness(student, submitted)
    assert (lateness.days, lateness.penalty) == (days, pytest.approx(penalty))


@pytest.mark.parametrize(
    ("student", "marked_late", "days", "note"),
    [
        ("carl", None, 0, "the time of submission is unknown, so it counts as in time"),
        ("carl", False, 0, ""),
        ("carl", True, 1, "marked as late without a time, so it counts as one day late"),
        ("bob", True, 0, "the time of submission is unknown, so it counts as in time; marked as late, but it has"),
        ("eve", True, 2, ""),  # her time is in the policy
    ],
)
def test_what_is_assumed_without_a_time_is_said(student, marked_late, days, note):
    policy = parse_late_policy(POLICY, "late.toml")
    lateness = policy["P1"].lateness(student, None, marked_late)
    assert (lateness.days, lateness.penalty) == (days, pytest.approx(days * 0.1))
    assert lateness.note.startswith(note)
    assert bool(lateness.note) == bool(note)
    assert policy["P3"].lateness(student, None, marked_late).note == ""  # nothing is due


def test_each_assignment_has_its_own_deadline():
    policy = parse_late_policy(POLICY, "late.toml")
    assert policy["P2"].lateness("ada", datetime(2026, 11, 1, 13, tzinfo=UTC)).penalty == pytest.approx(0.2)
    assert policy["P3"].lateness("ada", DUE).days == 0
    assert Deadline().lateness("ada", DUE).days == 0


def test_days_are_24_hours_where_daylight_saving_time_ends():
    # on 25 October 2026 clocks in Vienna go back, so from noon to noon there are 25 hours
    rules = 'timezone = "Europe/Vienna"\npenalty_per_day = 10\n[P1]\ndue = 2026-10-24T12:00:00\n'
    deadline = parse_late_policy(rules, "")["P1"]
    assert deadline.lateness("ada", datetime(2026, 10, 25, 10, 59, tzinfo=UTC)).days == 2
    assert deadline.lateness("ada", datetime(2026, 10, 25, 10, 0, tzinfo=UTC)).days == 1


TIMES = st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
DEADLINES = st.builds(
    Deadline,
    due=TIMES,
    grace=st.timedeltas(timedelta(), timedelta(hours=3)),
    penalty_per_day=st.floats(0, 1),
    max_penalty=st.floats(0, 1),
)


@given(DEADLINES, TIMES, st.timedeltas(timedelta(), timedelta(days=30)))
def test_later_never_costs_less(deadline, submitted, more):
    sooner, later = deadline.lateness("ada", submitted), deadline.lateness("ada", submitted + more)
    assert sooner.days <= later.days
    assert sooner.penalty <= later.penalty <= deadline.max_penalty


@given(DEADLINES, TIMES)
def test_in_time_costs_nothing_and_every_day_begun_counts(deadline, submitted):
    lateness = deadline.lateness("ada", submitted)
    over = submitted - deadline.due
    assert (lateness.days == 0) == (over <= deadline.grace)
    if lateness.days:
        assert timedelta(days=lateness.days - 1) < over <= timedelta(days=lateness.days)
        assert lateness.penalty == min(lateness.days * deadline.penalty_per_day, deadline.max_penalty)


@given(DEADLINES, TIMES, st.integers(-14, 14))
def test_the_zone_of_a_time_does_not_matter(deadline, submitted, hours):
    elsewhere = submitted.astimezone(timezone(timedelta(hours=hours)))
    assert deadline.lateness("ada", elsewhere).days == deadline.lateness("ada", submitted).days


@given(DEADLINES, TIMES, st.integers(0, 20))
def test_an_extension_by_days_moves_the_due_date(deadline, submitted, days):
    extended = Deadline(
        deadline.due, deadline.grace, deadline.penalty_per_day, deadline.max_penalty, {"ada": timedelta(days=days)}
    )
    assert extended.lateness("ada", submitted + timedelta(days=days)).days == deadline.lateness("bob", submitted).days
    assert extended.lateness("bob", submitted) == deadline.lateness("bob", submitted)


@pytest.mark.parametrize(
    "text",
    [
        "no toml",
        "grace = 3",
        "penalty_per_day = 101",
        "penalty_per_day = true",
        "most = -1",
        "timezone = 'Mars'",
        "timezone = 3",
        "[P1]\ndue = 2026-10-12",
        "[P1]\ndue = 'Monday'",
        "[P1]\nduedate = 1",
        "[P1]\nextensions = 3",
        "[P1.extensions]\nada = 'two'",
        "[P1.extensions]\nada = -1",
        "[P1.submitted]\nada = 3",
        "grace_minutes = nan",
    ],
)
def test_an_invalid_policy_is_refused(text):
    with pytest.raises(GradingError, match="policy for late submissions"):
        parse_late_policy(text, "late.toml")
