"""What a comparison has found: shown as a table, asked for ratios, stored and read again."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

from mlhood.errors import MeasureError
from mlhood.measure.measurement import Measurement, exactly
from mlhood.measure.ratio import Ratio
from mlhood.measure.units import duration, rate

if TYPE_CHECKING:
    import pandas as pd

_MOST_ALTERNATIVES = 1000


@dataclass(frozen=True)
class Comparison:
    """Measurements of alternatives from the same rounds.

    Args:
        measurements: By name, in the order given.
        baseline: What the others are compared with.
        cache: `interleaved` or `hot`.
        threads: To what number threads were fixed; None if they were not.
        first: Seconds of each one's first call, which may hold compiling.
        repeats: Calls that one timing of each holds.
        unfixed: What chooses its threads itself, and how it is told; empty where all are fixed or none was to be.
        interrupted: In how many rounds the system has taken the processor away.
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
        """Return how many times as long `above` takes as `below` (the baseline if left out): median over rounds."""
        return self[above].ratio(self[self.baseline if below is None else below])

    def speedup(self, name: str) -> Ratio:
        """Return how many times as fast as the baseline it is."""
        return self[self.baseline].ratio(self[name])

    @property
    def rates(self) -> dict[str, tuple[float, float, float]]:
        """Operations per second of each alternative that tells its operations; see `Measurement.rates`."""
        return {name: rates for name, one in self.measurements.items() if (rates := one.rates) is not None}

    def pairs(self) -> pd.DataFrame:
        """Return all ratios: how many times as long the row's alternative takes as the column's."""
        import pandas as pd

        names = list(self.measurements)
        return pd.DataFrame([[self.ratio(a, b) for b in names] for a in names], names, names)

    def frame(self) -> pd.DataFrame:
        """Return one row an alternative, formatted for people."""
        import pandas as pd

        rows = {name: self._row(name, one) for name, one in self.measurements.items()}
        return pd.DataFrame.from_dict(rows, orient="index").fillna("")

    def _row(self, name: str, one: Measurement) -> dict[str, str]:
        row = {"median": duration(one.median), "IQR": duration(one.iqr) if one.iqr else "0"}
        if one.flops_per_second is not None:
            row["rate"] = rate(one.flops_per_second)
        row[f"speed-up over {self.baseline}"] = "" if name == self.baseline else str(self.speedup(name))
        if name in self.first:
            row["first call"] = duration(self.first[name])
        return row

    def note(self) -> str:
        """Say in one line how it was measured."""
        count = next(iter(self.measurements.values())).rounds
        parts = [f"medians of {count} rounds in random order", f"caches {self.cache}"]
        repeated = {name: times for name, times in self.repeats.items() if times > 1}
        if repeated:
            parts.append("calls a timing: " + ", ".join(f"{name} {times:,}" for name, times in repeated.items()))
        parts.append("threads as they were" if self.threads is None else f"threads {self.threads}")
        parts += [f"not told by `threads`: {name}" for name in self.unfixed]
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

    def to_dict(self) -> dict[str, Any]:
        """Return plain data, all rounds included."""
        return {
            "measurements": {name: one.to_dict() for name, one in self.measurements.items()},
            "baseline": self.baseline,
            "cache": self.cache,
            "threads": self.threads,
            "first": self.first,
            "repeats": self.repeats,
            "unfixed": self.unfixed,
            "interrupted": self.interrupted,
            "machine": self.machine,
        }

    @classmethod
    def from_dict(cls, data: Any, where: str = "comparison") -> Comparison:
        """Read what `to_dict` wrote.

        Raises:
            MeasureError: It is not what `to_dict` writes.
        """
        parts = {
            "measurements",
            "baseline",
            "cache",
            "threads",
            "first",
            "repeats",
            "unfixed",
            "interrupted",
            "machine",
        }
        data = exactly(data, parts, where)
        stored = data["measurements"]
        if not isinstance(stored, Mapping) or not 0 < len(stored) <= _MOST_ALTERNATIVES:
            raise MeasureError("no alternatives are stored", where=where, got=type(stored).__name__)
        found = {str(name): Measurement.from_dict(one, f"{where}, {name}") for name, one in stored.items()}
        if data["baseline"] not in found:
            raise MeasureError("the baseline is not stored", where=where, expected=list(found), got=data["baseline"])
        for name in ("first", "repeats", "machine"):
            if not isinstance(data[name], dict):
                raise MeasureError(f"{name!r} is no mapping", where=where, got=type(data[name]).__name__)
        rest = {name: data[name] for name in parts - {"measurements"}}
        return cls(found, **rest)
