"""The cells of a table: a measurement with all its rounds, or an exact count."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlhood.errors import MeasureError
from mlhood.measure.ratio import Ratio, interval, median_ratio, quartiles
from mlhood.measure.units import duration, rate

_MAX_NAME = 200
MAX_ROUNDS = 10_000
_MAX_COUNT = 2**63
# stored statistics are recomputed from the rounds when they are read; relative tolerance for rounding
_TOLERANCE = 1e-9


@dataclass(frozen=True)
class Measurement:
    """How long something took, round by round.

    Args:
        seconds: Time of one call, for each round.
        flops: Floating-point operations of one call, if any.
        run: Id of the comparison; measurements of the same run are compared round by round.
        agreed: Whether the result was compared with those of the other alternatives of its run, and agreed.
    """

    seconds: tuple[float, ...]
    flops: float | None = None
    run: str = ""
    agreed: bool = False

    def __post_init__(self) -> None:
        if not self.seconds or not all(math.isfinite(value) and value > 0 for value in self.seconds):
            raise MeasureError(
                "a measurement is a time for each round",
                expected="one or more positive, finite numbers of seconds",
                got=self.seconds[:5],
            )

    @property
    def median(self) -> float:
        """Median in seconds."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile in seconds."""
        return quartiles(self.seconds)

    @property
    def iqr(self) -> float:
        """Inter-quartile range in seconds."""
        first, third = self.quartiles
        return third - first

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the median in seconds."""
        return interval(self.seconds)

    @property
    def rounds(self) -> int:
        """Number of rounds."""
        return len(self.seconds)

    @property
    def flops_per_second(self) -> float | None:
        """Rate at the median, if operations are known."""
        return None if self.flops is None else self.flops / self.median

    @property
    def rates(self) -> tuple[float, float, float] | None:
        """Operations per second at the median, the third quartile and the first, if operations are known."""
        if self.flops is None:
            return None
        first, third = self.quartiles
        return self.flops / self.median, self.flops / third, self.flops / first

    def ratio(self, other: Measurement) -> Ratio:
        """Return the time of this relative to `other`."""
        paired = bool(self.run) and self.run == other.run and self.rounds == other.rounds
        return median_ratio(self.seconds, other.seconds, paired=paired)

    def text(self, unit: str) -> str:
        """Format the median in a unit with the quartiles, and the rate if it is known."""
        first, third = (duration(value, unit, with_unit=False) for value in self.quartiles)
        text = f"{duration(self.median, unit)} ({first}–{third})"
        speed = self.flops_per_second
        return text if speed is None else f"{text}, {rate(speed)}"

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data: the statistics and the rounds."""
        context = {"flops": self.flops, "run": self.run, "agreed": self.agreed}
        return {"kind": "measurement", **self._statistics(), "seconds": list(self.seconds), **context}

    def _statistics(self) -> dict[str, Any]:
        return {"median": self.median, "iqr": self.iqr, "interval": list(self.interval), "rounds": self.rounds}

    @classmethod
    def from_dict(cls, data: Any, where: str = "measurement") -> Measurement:
        """Parse the result of `to_dict`; its statistics have to follow from its rounds.

        Raises:
            MeasureError: The data are invalid, or median, range or interval are not those of the rounds.
        """
        keys = {"kind", "median", "iqr", "interval", "rounds", "seconds", "flops", "run", "agreed"}
        data = check_keys(data, keys, where)
        seconds = data["seconds"]
        if data["kind"] != "measurement" or not isinstance(seconds, list) or not 0 < len(seconds) <= MAX_ROUNDS:
            raise MeasureError("invalid measurement", where=where, expected="kind and seconds of each round")
        measurement = cls(
            tuple(check_positive(value, f"{where}, seconds") for value in seconds),
            None if data["flops"] is None else check_positive(data["flops"], f"{where}, flops"),
            _check_name(data["run"], where),
            data["agreed"] is True,
        )
        for name, value in measurement._statistics().items():
            if not _is_close(data[name], value):
                raise MeasureError(
                    "stored statistics do not follow from the rounds",
                    where=f"{where}, {name}",
                    expected=value,
                    got=data[name],
                    todo="measure again with `compare`",
                )
        return measurement


@dataclass(frozen=True)
class Count:
    """An exact number that was counted, not measured.

    Args:
        value: 0 or more.
    """

    value: int

    def __post_init__(self) -> None:
        if type(self.value) is not int or not 0 <= self.value < _MAX_COUNT:
            raise MeasureError("invalid count", expected="an int, 0 or more", got=repr(self.value))

    def ratio(self, other: Count) -> Ratio:
        """Return this relative to `other`; infinite over 0, but 1 if both are 0."""
        if self.value == other.value:
            return Ratio(1.0, 1.0, 1.0)
        value = self.value / other.value if other.value else math.inf
        return Ratio(value, value, value)

    def text(self, unit: str) -> str:
        """Format the number with its unit."""
        return f"{self.value:,} {unit}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data."""
        return {"kind": "count", "value": self.value}

    @classmethod
    def from_dict(cls, data: Any, where: str = "count") -> Count:
        """Parse the result of `to_dict`.

        Raises:
            MeasureError: The data are invalid.
        """
        data = check_keys(data, {"kind", "value"}, where)
        if data["kind"] != "count":
            raise MeasureError("invalid count", where=where, got=repr(data["kind"]))
        return cls(data["value"])


def check_keys(data: Any, keys: set[str], where: str) -> Mapping[str, Any]:
    """Return `data` if it is a mapping with exactly these keys.

    Raises:
        MeasureError: It is not.
    """
    if isinstance(data, Mapping) and data.keys() == keys:
        return data
    got = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
    raise MeasureError("stored data have other keys", where=where, expected=sorted(keys), got=got)


def check_positive(value: Any, where: str) -> float:
    """Return a positive, finite number.

    Raises:
        MeasureError: It is not.
    """
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if math.isfinite(number) and number > 0:
        return number
    raise MeasureError("invalid quantity", where=where, expected="a positive, finite number", got=repr(value)[:50])


def _check_name(value: Any, where: str) -> str:
    if isinstance(value, str) and len(value) <= _MAX_NAME:
        return value
    raise MeasureError("invalid id of a run", where=where, got=repr(value)[:50])


def _is_close(stored: Any, value: Any) -> bool:
    if isinstance(value, list):
        return isinstance(stored, list) and len(stored) == len(value) and all(map(_is_close, stored, value))
    return type(stored) in (int, float) and math.isclose(stored, value, rel_tol=_TOLERANCE, abs_tol=1e-15)
