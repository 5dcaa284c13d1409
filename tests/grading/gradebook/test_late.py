from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import GradingError
from mlhood.grading.gradebook.late import Deadline, read_late

DUE = datetime(2026, 10, 12, 21, 59, tzinfo=UTC)
RULES = """
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
    ("student", "submitted", "days", "share"),
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
def test_days_and_shares(student, submitted, days, share):
    found = read_late(RULES, "late.toml").of("P1").lateness(student, submitted)
    assert (found.days, found.share) == (days, pytest.approx(share))


def test_each_assignment_has_its_rules():
    late = read_late(RULES, "late.toml")
    assert late.of("P2").lateness("ada", datetime(2026, 11, 1, 13, tzinfo=UTC)).share == pytest.approx(0.2)
    assert late.of("P3").lateness("ada", DUE).days == 0
    assert late.of("P9").lateness("ada", DUE).days == 0


def test_days_are_24_hours_where_summer_time_ends():
    # on 25 October 2026 clocks in Vienna go back, so from noon to noon there are 25 hours
    rules = 'timezone = "Europe/Vienna"\npenalty_per_day = 10\n[P1]\ndue = 2026-10-24T12:00:00\n'
    deadline = read_late(rules, "").of("P1")
    assert deadline.lateness("ada", datetime(2026, 10, 25, 10, 59, tzinfo=UTC)).days == 2
    assert deadline.lateness("ada", datetime(2026, 10, 25, 10, 0, tzinfo=UTC)).days == 1


TIMES = st.datetimes(datetime(2025, 1, 1), datetime(2027, 1, 1)).map(lambda time: time.replace(tzinfo=UTC))
DEADLINES = st.builds(
    Deadline,
    due=TIMES,
    grace=st.timedeltas(timedelta(), timedelta(hours=3)),
    per_day=st.floats(0, 1),
    most=st.floats(0, 1),
)


@given(DEADLINES, TIMES, st.timedeltas(timedelta(), timedelta(days=30)))
def test_later_never_costs_less(deadline, submitted, more):
    sooner, later = deadline.lateness("ada", submitted), deadline.lateness("ada", submitted + more)
    assert sooner.days <= later.days
    assert sooner.share <= later.share <= deadline.most


@given(DEADLINES, TIMES)
def test_in_time_costs_nothing_and_every_day_begun_counts(deadline, submitted):
    found = deadline.lateness("ada", submitted)
    over = submitted - deadline.due
    assert (found.days == 0) == (over <= deadline.grace)
    if found.days:
        assert timedelta(days=found.days - 1) < over <= timedelta(days=found.days)
        assert found.share == min(found.days * deadline.per_day, deadline.most)


@given(DEADLINES, TIMES, st.integers(-14, 14))
def test_the_zone_in_which_a_time_is_told_does_not_matter(deadline, submitted, hours):
    elsewhere = submitted.astimezone(timezone(timedelta(hours=hours)))
    assert deadline.lateness("ada", elsewhere).days == deadline.lateness("ada", submitted).days


@given(DEADLINES, TIMES, st.integers(0, 20))
def test_an_extension_by_days_moves_the_due_date(deadline, submitted, days):
    extended = Deadline(deadline.due, deadline.grace, deadline.per_day, deadline.most, {"ada": timedelta(days=days)})
    assert extended.lateness("ada", submitted + timedelta(days=days)).days == deadline.lateness("bob", submitted).days
    assert extended.lateness("bob", submitted) == deadline.lateness("bob", submitted)


@pytest.mark.parametrize(
    "text",
    [
        "no toml", "grace = 3", "penalty_per_day = 101", "penalty_per_day = true", "most = -1", "timezone = 'Mars'",
        "timezone = 3", "[P1]\ndue = 2026-10-12", "[P1]\ndue = 'Monday'", "[P1]\nduedate = 1", "[P1]\nextensions = 3",
        "[P1.extensions]\nada = 'two'", "[P1.extensions]\nada = -1", "[P1.submitted]\nada = 3", "grace_minutes = nan",
    ],
)  # fmt: skip
def test_faults_of_the_rules_are_told(text):
    with pytest.raises(GradingError, match="rules for late submissions"):
        read_late(text, "late.toml")
