"""The caches that slices must fit: declared, or those of this machine."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from typing import Any

from mlhood.errors import SlicingError
from mlhood.measure.machine import binary_size, machine

LEVELS = ("L1", "L2", "L3")
_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_FILL = 0.9


@dataclass(frozen=True)
class Caches:
    """Three levels of cache.

    Args:
        sizes: Bytes of L1, L2 and L3; None where a level is not there or not known, which then limits nothing.
        fill: Which part of each level slices may take; the rest is for the stack, tables and conflicts.
        line: Bytes of a cache line.
        latencies: Cycles until L1, L2, L3 and memory answer; those that SConv's authors declare.
    """

    sizes: tuple[int | None, int | None, int | None]
    fill: float = _FILL
    line: int = 64
    latencies: tuple[int, int, int, int] = (2, 10, 30, 300)

    def __post_init__(self) -> None:
        known = [size for size in self.sizes if size is not None]
        if len(self.sizes) != len(LEVELS) or any(size <= 0 for size in known) or sorted(known) != known:
            raise SlicingError(
                "these are no caches", expected="the sizes of L1, L2 and L3, none larger than the next", got=self.sizes
            )
        if not 0 < self.fill <= 1:
            raise SlicingError("caches cannot be filled that far", expected="more than 0, at most 1", got=self.fill)
        if self.line < 4 or self.line & (self.line - 1):
            raise SlicingError("this is no cache line", expected="a power of two, from 4 bytes on", got=self.line)

    @property
    def rooms(self) -> tuple[float, float, float]:
        """Bytes that slices may take of each level; infinite where it limits nothing."""
        first, second, third = (math.inf if size is None else math.floor(size * self.fill) for size in self.sizes)
        return first, second, third

    def as_dict(self) -> dict[str, Any]:
        """Return plain data."""
        return {"sizes": dict(zip(LEVELS, self.sizes, strict=True)), "fill": self.fill, "line": self.line,
                "latencies": list(self.latencies)}  # fmt: skip

    def __str__(self) -> str:
        sizes = zip(LEVELS, self.sizes, strict=True)
        return f"{', '.join(f'{name} {binary_size(size)}' for name, size in sizes)}, filled to {self.fill:g}"


def of_machine(fill: float = _FILL) -> Caches:
    """Return the caches that one core of this machine sees."""
    found = machine().caches
    return Caches((found.l1d, found.l2, found.l3), fill, found.line or 64)


def declared(text: str, fill: float = _FILL, line: int = 64) -> Caches:
    """Return the caches that a text like `32KiB,1MiB,4MiB` names; `-` stands for a level that is not there.

    Raises:
        SlicingError: If it does not name three sizes that grow.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(LEVELS):
        raise SlicingError("three levels of cache are needed", expected="such as 32KiB,1MiB,4MiB", got=text)
    first, second, third = (None if part == "-" else _bytes(part) for part in parts)
    return Caches((first, second, third), fill, line)


def _bytes(text: str) -> int:
    found = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if found is None or found.group(2).upper() not in _UNITS:
        raise SlicingError("this is no size of a cache", expected="bytes, or a number of KiB or MiB", got=text)
    return round(float(found.group(1)) * _UNITS[found.group(2).upper()])
