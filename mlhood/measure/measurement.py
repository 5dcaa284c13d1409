"""The cells of a table: a measurement with all its rounds, or an exact count."""

from __future__ import annotations

import math
import numbers
import statistics
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlhood.errors import MeasureError
from mlhood.measure.ratio import Ratio, interval, median_ratio, quartiles
from mlhood.measure.units import duration, rate

if TYPE_CHECKING:
    import pandas as pd

_MAX_NAME = 200
MAX_ROUNDS = 10_000
_MAX_COUNT = 2**63


@dataclass(frozen=True)
class Measurement:
    """How long something took, round by round.

    Args:
        seconds: Time of one call, for each round.
        flops: Floating-point operations of one call, if any.
        run: Id of the comparison; measurements of the same run are compared round by round.
        agreed: Whether the result was compared with those of the other alternatives of its run, and agreed.
        threads: The number that threads were set to; None if they were not.
    """

    seconds: tuple[float, ...]
    flops: float | None = None
    run: str = ""
    agreed: bool = False
    threads: int | None = None

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
        """Return JSON-serializable data; the statistics follow from the rounds."""
        context = {"flops": self.flops, "run": self.run, "agreed": self.agreed, "threads": self.threads}
        return {"kind": "measurement", "seconds": list(self.seconds), **context}

    @classmethod
    def from_dict(cls, data: Any, where: str = "measurement") -> Measurement:
        """Parse the result of `to_dict`.

        Raises:
            MeasureError: The data are invalid.
        """
        data = check_keys(data, {"kind", "seconds", "flops", "run", "agreed", "threads"}, where)
        seconds = data["seconds"]
        if data["kind"] != "measurement" or not isinstance(seconds, list) or not 0 < len(seconds) <= MAX_ROUNDS:
            raise MeasureError("invalid measurement", where=where, expected="kind and seconds of each round")
        if not isinstance(data["run"], str) or len(data["run"]) > _MAX_NAME:
            raise MeasureError("invalid id of a run", where=where, got=repr(data["run"])[:50])
        return cls(
            tuple(check_positive(value, f"{where}, seconds") for value in seconds),
            None if data["flops"] is None else check_positive(data["flops"], f"{where}, flops"),
            data["run"],
            data["agreed"] is True,
            None if data["threads"] is None else int(check_positive(data["threads"], f"{where}, threads")),
        )


@dataclass(frozen=True)
class Count:
    """An exact number that was counted, not measured.

    Args:
        value: 0 or more; an integer of NumPy becomes one of Python.
    """

    value: int

    def __post_init__(self) -> None:
        if isinstance(self.value, numbers.Integral) and not isinstance(self.value, bool):
            object.__setattr__(self, "value", int(self.value))
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
    """Return `data` if it is a mapping with these keys; others are ignored.

    Raises:
        MeasureError: It is not.
    """
    if isinstance(data, Mapping) and keys <= data.keys():
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


@dataclass(frozen=True)
class Comparison:
    """Measurements of alternatives from the same rounds.

    Args:
        measurements: By name, in the order given.
        baseline: Name of the reference.
        cache: `interleaved` or `hot`.
        threads: The number that threads were set to; None if they were not.
        first: Seconds of each alternative's first call, which may include compilation.
        repeats: Calls per timing, by name.
        unfixed: Libraries that choose their own number of threads, and how to configure them.
        interrupted: Rounds during which the process was preempted.
        machine: `Machine.as_dict()`.
    """

    measurements: dict[str, Measurement]
    baseline: str
    cache: str = "interleaved"
    threads: int | None = None
    first: dict[str, float] = field(default_factory=dict)
    repeats: dict[str, int] = field(default_factory=dict)
    unfixed: list[str] = field(default_factory=list)
    interrupted: int = 0
    machine: dict[str, Any] = field(default_factory=dict)

    def __getitem__(self, name: str) -> Measurement:
        if name not in self.measurements:
            raise MeasureError("this was not measured", expected=list(self.measurements), got=repr(name))
        return self.measurements[name]

    def ratio(self, above: str, below: str | None = None) -> Ratio:
        """Return the time of `above` relative to `below` (the baseline by default): the median over rounds."""
        return self[above].ratio(self[self.baseline if below is None else below])

    def speedup(self, name: str) -> Ratio:
        """Return the speed-up of an alternative over the baseline."""
        return self[self.baseline].ratio(self[name])

    @property
    def rates(self) -> dict[str, tuple[float, float, float]]:
        """Operations per second of each alternative with known operations; see `Measurement.rates`."""
        return {name: rates for name, m in self.measurements.items() if (rates := m.rates) is not None}

    def frame(self) -> pd.DataFrame:
        """Return one formatted row per alternative."""
        import pandas as pd

        rows = {name: self._row(name, measurement) for name, measurement in self.measurements.items()}
        return pd.DataFrame.from_dict(rows, orient="index").fillna("")

    def _row(self, name: str, measurement: Measurement) -> dict[str, str]:
        row = {"median": duration(measurement.median), "IQR": duration(measurement.iqr) if measurement.iqr else "0"}
        if measurement.flops_per_second is not None:
            row["rate"] = rate(measurement.flops_per_second)
        row[f"speed-up over {self.baseline}"] = "" if name == self.baseline else str(self.speedup(name))
        if name in self.first:
            row["first call"] = duration(self.first[name])
        return row

    def note(self) -> str:
        """Describe the conditions of the measurement in one line."""
        count = next(iter(self.measurements.values())).rounds
        parts = [f"medians of {count} rounds in random order", f"caches {self.cache}"]
        repeated = {name: times for name, times in self.repeats.items() if times > 1}
        if repeated:
            parts.append("calls per timing: " + ", ".join(f"{name} {times:,}" for name, times in repeated.items()))
        parts.append("threads unchanged" if self.threads is None else f"threads {self.threads}")
        parts += [f"not set by `threads`: {library}" for library in self.unfixed]
        if self.interrupted:
            parts.append(f"{self.interrupted} rounds interrupted by other programs")
        if self.machine:
            parts.append(str(self.machine.get("cpu")))
        return "; ".join(parts)

    def __str__(self) -> str:
        return f"{self.frame().to_string()}\n{self.note()}"

    def __repr__(self) -> str:
        return str(self)

    def _repr_html_(self) -> str:
        from html import escape

        return f"{self.frame().to_html()}<p>{escape(self.note())}</p>"
