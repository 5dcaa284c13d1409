"""Late submissions: due dates, a grace period, a penalty per started day, and extensions, from a TOML file.

timezone = "Europe/Vienna"      # of times without one; UTC by default
grace_minutes = 15
penalty_per_day = 10            # percent of the points earned, for every started day
most = 50                       # the largest penalty, in percent

[P1]
due = 2026-10-12T23:59:00
penalty_per_day = 20            # overrides the default

[P1.extensions]                 # a new due date, or additional days
ada = 2026-10-15T23:59:00
bob = 2

[P1.submitted]                  # where the layout of the submissions has no times
eve = 2026-10-13T08:00:00
"""

from __future__ import annotations

import math
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta, tzinfo
from typing import Any
from zoneinfo import ZoneInfo

from mlhood.errors import GradingError

DAY = timedelta(days=1)
UNKNOWN_TIME = "the time of submission is unknown, so it counts as in time"
MARKED_LATE = "marked as late without a time, so it counts as one day late"
DEFAULTS = {"grace_minutes": 0.0, "penalty_per_day": 0.0, "most": 100.0}


@dataclass(frozen=True)
class Lateness:
    """How late a submission is: started days after the due date (0 within the grace period), and the penalty.

    The penalty is a fraction of the points earned. `note` says what was assumed where the time is not known.
    """

    due: datetime | None = None
    submitted: datetime | None = None
    days: int = 0
    penalty: float = 0.0
    note: str = ""


@dataclass(frozen=True)
class Deadline:
    """The policy of one assignment. Times have time zones; penalties are fractions of the points earned."""

    due: datetime | None = None
    grace: timedelta = timedelta()
    penalty_per_day: float = 0.0
    max_penalty: float = 1.0
    extensions: Mapping[str, datetime | timedelta] = field(default_factory=dict)
    submitted: Mapping[str, datetime] = field(default_factory=dict)

    def lateness(self, student: str, submitted: datetime | None, marked_late: bool | None = None) -> Lateness:
        """Return how late a student's submission is. A day is 24 hours, whatever the zone and daylight saving time.

        Args:
            submitted: Time of submission, where the layout has it.
            marked_late: Whether the layout marks the submission as late; None if the layout marks none.
        """
        due, submitted = self._due(student), self.submitted.get(student, submitted)
        if due is None:
            return Lateness(due, submitted)
        if submitted is None:
            return self._without_time(due, marked_late, extended=student in self.extensions)
        over = submitted.astimezone(UTC) - due.astimezone(UTC)
        if over <= max(self.grace, timedelta()):
            return Lateness(due, submitted)
        days = math.ceil(over / DAY)
        return Lateness(due, submitted, days, min(days * self.penalty_per_day, self.max_penalty))

    def _without_time(self, due: datetime, marked_late: bool | None, *, extended: bool) -> Lateness:
        if marked_late and extended:  # by the learning platform, which does not know of the extension
            return Lateness(due, note=f"{UNKNOWN_TIME}; marked as late, but it has an extension here")
        if marked_late:
            return Lateness(due, None, 1, min(self.penalty_per_day, self.max_penalty), MARKED_LATE)
        return Lateness(due, note=UNKNOWN_TIME if marked_late is None else "")

    def _due(self, student: str) -> datetime | None:
        extension = self.extensions.get(student)
        if self.due is None or isinstance(extension, datetime):
            return extension if isinstance(extension, datetime) else None
        # in UTC: days added in local time would be off by an hour where daylight saving time begins or ends
        return self.due.astimezone(UTC) + (extension or timedelta())


def parse_late_policy(text: str, where: object) -> dict[str, Deadline]:
    """Return the deadlines in a policy, by assignment; without one, nothing is late.

    Args:
        text: TOML as shown in this module's docstring.
        where: It was found, for messages.

    Raises:
        GradingError: It is not TOML, a name is unknown, or a value is invalid.
    """
    try:
        data = tomllib.loads(text)
        zone = _zone(data.pop("timezone", "UTC"))
        defaults = {name: _number(name, data.pop(name, default)) for name, default in DEFAULTS.items()}
        return {str(name): _deadline(str(name), table, defaults, zone) for name, table in data.items()}
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise GradingError(
            "the policy for late submissions cannot be read",
            where=where,
            expected="timezone, grace_minutes, penalty_per_day, most, and a table for every assignment",
            got=str(error),
            todo="see `mlhood grade --help` for an example",
        ) from None


def _deadline(name: str, table: Any, defaults: Mapping[str, float], zone: tzinfo) -> Deadline:
    if not isinstance(table, dict):
        raise ValueError(f"{name!r} is neither a rule nor the table of an assignment")
    unknown = set(table) - {*DEFAULTS, "due", "extensions", "submitted"}
    if unknown:
        raise ValueError(f"[{name}] has unknown names: {', '.join(sorted(unknown))}")
    rules = {rule: _number(f"{name}.{rule}", table.get(rule, default)) for rule, default in defaults.items()}
    due = _time(f"{name}.due", table["due"], zone) if "due" in table else None
    extensions = {
        student: _extension(f"{name}.extensions.{student}", value, zone)
        for student, value in _students(table, "extensions").items()
    }
    submitted = {
        student: _time(f"{name}.submitted.{student}", value, zone)
        for student, value in _students(table, "submitted").items()
    }
    grace = timedelta(minutes=rules["grace_minutes"])
    return Deadline(due, grace, rules["penalty_per_day"] / 100, rules["most"] / 100, extensions, submitted)


def _students(table: Mapping[str, Any], name: str) -> dict[str, Any]:
    students = table.get(name, {})
    if not isinstance(students, dict):
        raise ValueError(f"{name} is not a table of students")
    return students


def _zone(name: Any) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError):
        raise ValueError(f"unknown time zone {name!r} (try Europe/Vienna)") from None


def _number(name: str, value: Any) -> float:
    limit = math.inf if name.endswith("minutes") else 100.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= limit:
        raise ValueError(f"{name} = {value!r} is not a number from 0 to {limit:g}")
    return float(min(value, 10**8))


def _time(name: str, value: Any, zone: tzinfo) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError(f"{name} = {value!r} is not a time such as 2026-10-12T23:59:00")
    return value if value.tzinfo else value.replace(tzinfo=zone)


def _extension(name: str, value: Any, zone: tzinfo) -> datetime | timedelta:
    if isinstance(value, datetime):
        return _time(name, value, zone)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3650:
        raise ValueError(f"{name} = {value!r} is neither a time nor a number of days")
    return timedelta(days=value)
