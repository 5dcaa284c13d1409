"""Where a long drawing is cut into columns that stand side by side."""

from __future__ import annotations

from collections.abc import Sequence

COLUMN = 1000.0  # pixels a column is high at most, where the width allows
MOST_COLUMNS = 4
_SLACK = 0.2  # of a column's height by which a cut may be off for the sake of fewer wires across it


def column_count(height: float) -> int:
    """Return into how many columns a drawing of this height is cut by itself."""
    return max(1, min(MOST_COLUMNS, round(height / COLUMN + 0.35)))


def cuts(heights: Sequence[float], crossing: Sequence[int], count: int) -> list[int]:
    """Return the layers with which the second and later columns begin.

    Args:
        heights: Height of each layer.
        crossing: How many values go from each layer to the next.
        count: Number of columns wanted; fewer where there are not as many layers.
    """
    ends = [0.0]
    for height in heights:
        ends.append(ends[-1] + height)
    found: list[int] = []
    for i in range(1, count):
        ideal = ends[-1] * i / count
        first = found[-1] + 1 if found else 1
        open_places = [
            place
            for place in range(first, len(heights))
            if abs(ends[place] - ideal) <= _SLACK * ends[-1] / count and place >= first
        ]
        if open_places:
            found.append(min(open_places, key=lambda place: (crossing[place - 1], abs(ends[place] - ideal))))
    return found
