"""The result of a comparison: a table with ratios, and its storage format."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import TYPE_CHECKING, Any

from mlhood.errors import MeasureError
from mlhood.measure.measurement import Measurement, check_keys
from mlhood.measure.ratio import Ratio
from mlhood.measure.units import duration, rate

if TYPE_CHECKING:
    import pandas as pd

_MAX_ALTERNATIVES = 1000


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

    def pairs(self) -> pd.DataFrame:
        """Return all ratios: the time of the row's alternative relative to the column's."""
        import pandas as pd

        names = list(self.measurements)
        return pd.DataFrame([[self.ratio(a, b) for b in names] for a in names], names, names)

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

    def to_dict(self) -> dict[str, Any]:
        """Return JSON-serializable data with all rounds."""
        data = {part.name: getattr(self, part.name) for part in fields(self)}
        return data | {"measurements": {name: m.to_dict() for name, m in self.measurements.items()}}

    @classmethod
    def from_dict(cls, data: Any, where: str = "comparison") -> Comparison:
        """Parse the result of `to_dict`.

        Raises:
            MeasureError: The data are invalid.
        """
        data = check_keys(data, {part.name for part in fields(cls)}, where)
        stored = data["measurements"]
        if not isinstance(stored, Mapping) or not 0 < len(stored) <= _MAX_ALTERNATIVES:
            raise MeasureError("invalid measurements", where=where, got=type(stored).__name__)
        measurements = {str(name): Measurement.from_dict(m, f"{where}, {name}") for name, m in stored.items()}
        if data["baseline"] not in measurements:
            raise MeasureError("unknown baseline", where=where, expected=list(measurements), got=data["baseline"])
        for name in ("first", "repeats", "machine"):
            if not isinstance(data[name], dict):
                raise MeasureError(f"{name!r} is not a mapping", where=where, got=type(data[name]).__name__)
        return cls(**{**data, "measurements": measurements})
