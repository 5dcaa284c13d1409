"""What stands in the cell of a table: all rounds of a measurement, or a number that was counted."""

from __future__ import annotations

import math
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from mlhood.errors import MeasureError
from mlhood.measure.ratio import Ratio, interval, median_ratio, quartiles
from mlhood.measure.units import duration, rate

_LONGEST_NAME = 200
MOST_ROUNDS = 10_000
_LARGEST_COUNT = 2**63
# what is told of the rounds is computed from them again when it is read; this much may rounding take
_CLOSE = 1e-9


@dataclass(frozen=True)
class Measurement:
    """How long something took, round by round.

    Args:
        seconds: Time of one call, for each round.
        flops: Floating-point operations of one call, where it has any.
        run: Which comparison the rounds are from; measurements of the same run are compared round by round.
        agreed: Whether its result was compared with that of the other alternatives of its run, and agreed.
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
        """Seconds."""
        return statistics.median(self.seconds)

    @property
    def quartiles(self) -> tuple[float, float]:
        """First and third quartile in seconds."""
        return quartiles(self.seconds)

    @property
    def iqr(self) -> float:
        """Inter-quartile range in seconds: how wide the middle half of the rounds lies."""
        first, third = self.quartiles
        return third - first

    @property
    def interval(self) -> tuple[float, float]:
        """Confidence interval of the median in seconds."""
        return interval(self.seconds)

    @property
    def rounds(self) -> int:
        """How often it was measured."""
        return len(self.seconds)

    @property
    def flops_per_second(self) -> float | None:
        """Rate at the median, where operations are known."""
        return None if self.flops is None else self.flops / self.median

    @property
    def rates(self) -> tuple[float, float, float] | None:
        """Operations per second at the median, at the third quartile and at the first, where operations are known."""
        if self.flops is None:
            return None
        first, third = self.quartiles
        return self.flops / self.median, self.flops / third, self.flops / first

    def ratio(self, other: Measurement) -> Ratio:
        """Return how many times as long this takes as `other`."""
        same = bool(self.run) and self.run == other.run and self.rounds == other.rounds
        return median_ratio(self.seconds, other.seconds, paired=same)

    def text(self, unit: str) -> str:
        """Return the median in a unit with the quartiles, and the rate where it is known."""
        first, third = (duration(value, unit, with_unit=False) for value in self.quartiles)
        told = f"{duration(self.median, unit)} ({first}–{third})"
        speed = self.flops_per_second
        return told if speed is None else f"{told}, {rate(speed)}"

    def to_dict(self) -> dict[str, Any]:
        """Return plain data: what is told of the rounds, and the rounds."""
        return {"kind": "measurement", **self._told(), "seconds": list(self.seconds), **self._context()}

    def _told(self) -> dict[str, Any]:
        return {"median": self.median, "iqr": self.iqr, "interval": list(self.interval), "rounds": self.rounds}

    def _context(self) -> dict[str, Any]:
        return {"flops": self.flops, "run": self.run, "agreed": self.agreed}

    @classmethod
    def from_dict(cls, data: Any, where: str = "measurement") -> Measurement:
        """Read what `to_dict` wrote; what is told of the rounds has to follow from them.

        Raises:
            MeasureError: It is not what `to_dict` writes, or median, spread or interval are not those of the rounds.
        """
        keys = {"kind", "median", "iqr", "interval", "rounds", "seconds", "flops", "run", "agreed"}
        data = exactly(data, keys, where)
        seconds = data["seconds"]
        if data["kind"] != "measurement" or not isinstance(seconds, list) or not 0 < len(seconds) <= MOST_ROUNDS:
            raise MeasureError("this is no measurement", where=where, expected="kind and seconds of each round")
        read = cls(
            tuple(positive(value, f"{where}, seconds") for value in seconds),
            None if data["flops"] is None else positive(data["flops"], f"{where}, flops"),
            _name(data["run"], where),
            data["agreed"] is True,
        )
        for name, value in read._told().items():
            if not _same(data[name], value):
                raise MeasureError("what is told is not that of the rounds", where=f"{where}, {name}", expected=value,
                                   got=data[name], todo="measure again with `compare`")  # fmt: skip
        return read


@dataclass(frozen=True)
class Count:
    """A number that was counted, not measured: it is the same every time.

    Args:
        value: 0 or more.
    """

    value: int

    def __post_init__(self) -> None:
        if type(self.value) is not int or not 0 <= self.value < _LARGEST_COUNT:
            raise MeasureError("this is no count", expected="an int, 0 or more", got=repr(self.value))

    def ratio(self, other: Count) -> Ratio:
        """Return how many times as large this is as `other`; infinite over 0, but 1 where both are 0."""
        if self.value == other.value:
            return Ratio(1.0, 1.0, 1.0)
        value = self.value / other.value if other.value else math.inf
        return Ratio(value, value, value)

    def text(self, unit: str) -> str:
        """Return the number with its unit."""
        return f"{self.value:,} {unit}".rstrip()

    def to_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"kind": "count", "value": self.value}

    @classmethod
    def from_dict(cls, data: Any, where: str = "count") -> Count:
        """Read what `to_dict` wrote.

        Raises:
            MeasureError: It is not what `to_dict` writes.
        """
        data = exactly(data, {"kind", "value"}, where)
        if data["kind"] != "count":
            raise MeasureError("this is no count", where=where, got=repr(data["kind"]))
        return cls(data["value"])


def exactly(data: Any, keys: set[str], where: str) -> Mapping[str, Any]:
    """Return `data` if it is a mapping with these keys and no others.

    Raises:
        MeasureError: It is something else.
    """
    if isinstance(data, Mapping) and data.keys() == keys:
        return data
    got = sorted(map(str, data)) if isinstance(data, Mapping) else type(data).__name__
    raise MeasureError("the stored data have other parts", where=where, expected=sorted(keys), got=got)


def positive(value: Any, where: str) -> float:
    """Return a positive, finite number.

    Raises:
        MeasureError: It is something else.
    """
    try:
        number = float(value) if type(value) in (int, float) else math.nan
    except OverflowError:
        number = math.nan
    if math.isfinite(number) and number > 0:
        return number
    raise MeasureError("this is no quantity", where=where, expected="a positive, finite number", got=repr(value)[:50])


def _name(value: Any, where: str) -> str:
    if isinstance(value, str) and len(value) <= _LONGEST_NAME:
        return value
    raise MeasureError("this is no name of a run", where=where, got=repr(value)[:50])


def _same(told: Any, value: Any) -> bool:
    if isinstance(value, list):
        return isinstance(told, list) and len(told) == len(value) and all(map(_same, told, value))
    return type(told) in (int, float) and math.isclose(told, value, rel_tol=_CLOSE, abs_tol=1e-15)
