"""The caches that slices must fit: declared, or those of this machine."""

from __future__ import annotations

import math
import re
from dataclasses import dataclass

from mlhood.errors import SlicingError
from mlhood.measure.machine import binary_size, machine

LEVELS = ("L1", "L2", "L3")
_UNITS = {"": 1, "B": 1, "KIB": 2**10, "MIB": 2**20, "GIB": 2**30}
_FILL = 0.9


@dataclass(frozen=True)
class Caches:
    """Three levels of cache.

    Args:
        sizes: Bytes of L1, L2 and L3; None for a level that is absent or unknown, which then limits nothing.
        fill: Fraction of each level that slices may occupy; the rest is for the stack, tables and conflict misses.
        line: Bytes of a cache line.
        latencies: Cycles of a load from L1, L2, L3 and memory; the defaults are SConv's.
    """

    sizes: tuple[int | None, int | None, int | None]
    fill: float = _FILL
    line: int = 64
    latencies: tuple[int, int, int, int] = (2, 10, 30, 300)

    def __post_init__(self) -> None:
        limited = [size for size in self.sizes if size is not None]
        if len(self.sizes) != len(LEVELS) or any(size <= 0 for size in limited) or sorted(limited) != limited:
            expected = "the sizes of L1, L2 and L3, none larger than the next"
            raise SlicingError("invalid sizes of caches", expected=expected, got=self.sizes)
        if not 0 < self.fill <= 1:
            raise SlicingError("invalid fill of the caches", expected="more than 0, at most 1", got=self.fill)
        if self.line < 4 or self.line & (self.line - 1):
            expected = "a power of two, at least 4 bytes"
            raise SlicingError("invalid size of a cache line", expected=expected, got=self.line)

    @property
    def rooms(self) -> tuple[float, float, float]:
        """Bytes that slices may occupy in each level; infinite where it limits nothing."""
        first, second, third = (math.inf if size is None else math.floor(size * self.fill) for size in self.sizes)
        return first, second, third

    def __str__(self) -> str:
        sizes = zip(LEVELS, self.sizes, strict=True)
        return f"{', '.join(f'{name} {binary_size(size)}' for name, size in sizes)}, filled to {self.fill:g}"


def of_machine(fill: float = _FILL) -> Caches:
    """Return the caches that one core of this machine sees."""
    caches = machine().caches
    return Caches((caches.l1d, caches.l2, caches.l3), fill, caches.line or 64)


def declared(text: str, fill: float = _FILL, line: int = 64) -> Caches:
    """Return the caches that a text such as `32KiB,1MiB,4MiB` declares; `-` is an absent level.

    Raises:
        SlicingError: If these are not three increasing sizes.
    """
    parts = [part.strip() for part in text.split(",")]
    if len(parts) != len(LEVELS):
        raise SlicingError("three levels of cache are needed", expected="such as 32KiB,1MiB,4MiB", got=text)
    first, second, third = (None if part == "-" else _bytes(part) for part in parts)
    return Caches((first, second, third), fill, line)


def _bytes(text: str) -> int:
    match = re.fullmatch(r"(\d{1,18}(?:\.\d+)?)\s*([A-Za-z]*)", text)
    if match is None or match.group(2).upper() not in _UNITS:
        raise SlicingError("invalid size of a cache", expected="bytes, or a number of KiB or MiB", got=text)
    return round(float(match.group(1)) * _UNITS[match.group(2).upper()])
