"""Numbers for people: three significant digits, and a unit that suits the magnitude."""

from __future__ import annotations

import math

from mlhood.errors import MeasureError

TIMES = {"s": 1.0, "ms": 1e3, "us": 1e6, "ns": 1e9}  # unit of time -> units per second
_PREFIXES = ("", "k", "M", "G", "T", "P")


def digits(value: float, count: int = 3) -> str:
    """Format a number with this many significant digits: `0.00123`, `12.3`, `1,230`."""
    if value == 0 or not math.isfinite(value):
        return f"{value:g}"
    decimals = count - 1 - math.floor(math.log10(abs(value)))
    return f"{round(value, decimals):,.{max(decimals, 0)}f}"


def duration(seconds: float, unit: str | None = None, *, with_unit: bool = True) -> str:
    """Format a time with three significant digits, in a unit or in the largest that gives at least 1.

    Raises:
        MeasureError: The unit is not one of `TIMES`.
    """
    if unit is None:
        unit = next((name for name, per_second in TIMES.items() if seconds * per_second >= 1), "ns")
    if unit not in TIMES:
        raise MeasureError("unknown unit of time", expected=", ".join(TIMES), got=unit)
    number = digits(seconds * TIMES[unit])
    return f"{number} {unit}" if with_unit else number


def rate(per_second: float, what: str = "FLOP/s") -> str:
    """Format a rate with three significant digits and a decimal prefix: `36.1 GFLOP/s`, `25.3 GB/s`."""
    power = min(max(math.floor(math.log10(per_second) / 3), 0), len(_PREFIXES) - 1) if per_second > 0 else 0
    return f"{digits(per_second / 1000**power)} {_PREFIXES[power]}{what}"


def times(ratio: float) -> str:
    """Format a speed-up: `3.25x`."""
    return f"{digits(ratio)}x"
