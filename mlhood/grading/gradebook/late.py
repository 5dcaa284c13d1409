"""Late days: due dates, grace, a penalty for every day begun, and extensions, from a TOML file.

timezone = "Europe/Vienna"      # of times that name none; UTC if left out
grace_minutes = 15
penalty_per_day = 10            # per cent of the points earned
most = 50                       # per cent, however late

[P1]
due = 2026-10-12T23:59:00
penalty_per_day = 20            # for this assignment

[P1.extensions]                 # a new due date, or days more
ada = 2026-10-15T23:59:00
bob = 2

[P1.submitted]                  # where the layout of the submissions tells no time
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
RULES = {"grace_minutes": 0.0, "penalty_per_day": 0.0, "most": 100.0}


@dataclass(frozen=True)
class Lateness:
    """How late a submission is: days begun after the due date (0 within the grace), and the share that it costs."""

    due: datetime | None = None
    submitted: datetime | None = None
    days: int = 0
    share: float = 0.0


@dataclass(frozen=True)
class Deadline:
    """The rules of one assignment. Times have their zones; the grace is a time, the penalties are shares of 1."""

    due: datetime | None = None
    grace: timedelta = timedelta()
    per_day: float = 0.0
    most: float = 1.0
    extensions: Mapping[str, datetime | timedelta] = field(default_factory=dict)
    submitted: Mapping[str, datetime] = field(default_factory=dict)

    def lateness(self, student: str, submitted: datetime | None) -> Lateness:
        """How late a student's submission is. Days are spans of 24 hours, so no zone and no summer time matters."""
        due, submitted = self._due(student), self.submitted.get(student, submitted)
        if due is None or submitted is None:
            return Lateness(due, submitted)
        over = submitted.astimezone(UTC) - due.astimezone(UTC)
        if over <= max(self.grace, timedelta()):
            return Lateness(due, submitted)
        days = math.ceil(over / DAY)
        return Lateness(due, submitted, days, min(days * self.per_day, self.most))

    def _due(self, student: str) -> datetime | None:
        extension = self.extensions.get(student)
        if self.due is None or isinstance(extension, datetime):
            return extension if isinstance(extension, datetime) else None
        # through UTC, as adding days on the clock of a place would move by an hour where summer time begins
        return self.due.astimezone(UTC) + (extension or timedelta())


@dataclass(frozen=True)
class Late:
    """The rules of all assignments."""

    deadlines: Mapping[str, Deadline] = field(default_factory=dict)

    def of(self, assignment: str) -> Deadline:
        """The rules of an assignment; without any, nothing is late."""
        return self.deadlines.get(assignment, Deadline())


def read_late(text: str, where: object) -> Late:
    """Read the rules.

    Args:
        text: TOML, as this module's docstring shows it.
        where: Where it comes from, for messages.

    Raises:
        GradingError: It is no TOML, a name is unknown, or a value has no meaning.
    """
    try:
        plain = tomllib.loads(text)
        zone = _zone(plain.pop("timezone", "UTC"))
        rules = {name: _share(name, plain.pop(name, default)) for name, default in RULES.items()}
        return Late({str(name): _deadline(str(name), table, rules, zone) for name, table in plain.items()})
    except (tomllib.TOMLDecodeError, ValueError) as error:
        raise GradingError(
            "the rules for late submissions cannot be read",
            where=where,
            expected="timezone, grace_minutes, penalty_per_day, most, and a table for every assignment",
            got=str(error),
            todo="see `mlhood grade --help` for an example",
        ) from None


def _deadline(name: str, table: Any, rules: Mapping[str, float], zone: tzinfo) -> Deadline:
    if not isinstance(table, dict):
        raise ValueError(f"{name!r} is no rule and no table of an assignment")
    unknown = set(table) - {*RULES, "due", "extensions", "submitted"}
    if unknown:
        raise ValueError(f"[{name}] has unknown names: {', '.join(sorted(unknown))}")
    own = {rule: _share(f"{name}.{rule}", table.get(rule, rules[rule])) for rule in RULES}
    due = _time(f"{name}.due", table["due"], zone) if "due" in table else None
    extensions = {
        who: _extension(f"{name}.extensions.{who}", value, zone) for who, value in _entries(table, "extensions")
    }
    submitted = {who: _time(f"{name}.submitted.{who}", value, zone) for who, value in _entries(table, "submitted")}
    grace = timedelta(minutes=own["grace_minutes"])
    return Deadline(due, grace, own["penalty_per_day"] / 100, own["most"] / 100, extensions, submitted)


def _entries(table: Mapping[str, Any], name: str) -> list[tuple[str, Any]]:
    entries = table.get(name, {})
    if not isinstance(entries, dict):
        raise ValueError(f"{name} is no table of students")
    return list(entries.items())


def _zone(name: Any) -> tzinfo:
    try:
        return UTC if name == "UTC" else ZoneInfo(name)
    except (KeyError, OSError, TypeError, ValueError):
        raise ValueError(f"there is no time zone {name!r} (try Europe/Vienna)") from None


def _share(name: str, value: Any) -> float:
    limit = math.inf if name.endswith("minutes") else 100.0
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= limit:
        raise ValueError(f"{name} = {value!r} is no number from 0 to {limit:g}")
    return float(min(value, 10**8))


def _time(name: str, value: Any, zone: tzinfo) -> datetime:
    if not isinstance(value, datetime):
        raise ValueError(f"{name} = {value!r} is no time such as 2026-10-12T23:59:00")
    return value if value.tzinfo else value.replace(tzinfo=zone)


def _extension(name: str, value: Any, zone: tzinfo) -> datetime | timedelta:
    if isinstance(value, datetime):
        return _time(name, value, zone)
    if isinstance(value, bool) or not isinstance(value, int | float) or not 0 <= value <= 3650:
        raise ValueError(f"{name} = {value!r} is no time and no number of days")
    return timedelta(days=value)
