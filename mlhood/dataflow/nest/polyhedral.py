"""A nest in the words of the polyhedral model: which points there are, and when each one's turn is.

The notation is that of the integer set library (Verdoolaege, isl, ICMS 2010), which reads both texts.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest


def domain(nest: Nest) -> str:
    """Return the iteration space: `{ S[i, j] : 0 <= i < 60 and 0 <= j < 8 }`."""
    ranges = [f"0 <= {name} < {extent}" for name, extent in nest.domain]
    return f"{{ {_point(nest)} : {' and '.join(ranges)} }}"


def schedule(nest: Nest) -> str:
    """Return when points are visited, in lexicographic order: `{ S[i] -> [i_o, i_i] : i = 16*i_o + i_i and ... }`."""
    places = zip((name for name, _ in nest.domain), map(str, nest.origin), strict=True)
    ranges = [f"0 <= {name} < {extent}" for name, extent in nest.extents.items()]
    conditions = [*(f"{name} = {value}" for name, value in places if name != value), *ranges, *map(str, nest.guards)]
    return f"{{ {_point(nest)} -> [{', '.join(nest.names)}] : {' and '.join(conditions)} }}"


def _point(nest: Nest) -> str:
    return f"S[{', '.join(name for name, _ in nest.domain)}]"
