"""The iteration space: its points in the order of the visits, and how many points and values there are.

Loops that no guard and no index joins are independent, and the space is the product of such groups: one is a split
dimension, or a convolution's row and its kernel's row. So a count takes as many steps as the groups have points in
sum, not in product.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

import numpy as np

from mlhood.dataflow.nest.affine import Affine
from mlhood.errors import NestError

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest

MOST_VISITS = 1 << 20
MOST_POINTS = 1 << 22  # of one group


def visits(nest: Nest) -> np.ndarray:
    """Return the points in the order of the visits: int64 [points, first loops]."""
    size = math.prod(nest.extents.values())
    if size > MOST_VISITS:
        raise NestError("these are too many points to be held", expected=f"at most {MOST_VISITS:,}", got=f"{size:,}",
                        todo="take a smaller case")  # fmt: skip
    values = _points(nest, nest.names)
    return np.stack([one.at(values) for one in nest.origin], axis=1)


def points(nest: Nest, names: Iterable[str]) -> int:
    """Return how many values some loops take together."""
    return distinct(nest, names, ())


def distinct(nest: Nest, names: Iterable[str], index: Sequence[Affine]) -> int:
    """Return how many different pairs there are of some loops' values and an index's values.

    Where the loops are those outside a tile, and the index is an array's, this is the tile's size, added up over all
    rounds of the loops outside.
    """
    keys = frozenset(names)
    total = 1
    for group in _groups(nest, keys.union(*(one.loops for one in index)), index):
        values = _points(nest, group)
        columns = [values[name] for name in group if name in keys]
        columns += [one.at(values) for one in (axis.only(frozenset(group)) for axis in index) if one.terms]
        total *= _different(columns)
    return total


def _groups(nest: Nest, names: frozenset[str], index: Sequence[Affine]) -> list[list[str]]:
    """Return loops in groups that guards and indices do not join."""
    groups = [{name} for name in nest.names if name in names]
    for joined in (*(guard.sum.loops & names for guard in nest.guards), *(axis.loops for axis in index)):
        touched = [group for group in groups if group & joined]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return [[name for name in nest.names if name in group] for group in groups]


def _points(nest: Nest, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the values that some loops take together, in the order in which these loops run."""
    extents = [nest.extents[name] for name in names]
    if math.prod(extents) > MOST_POINTS:
        raise NestError("these loops are too many to be counted together", where=", ".join(names),
                        expected=f"at most {MOST_POINTS:,} points", got=f"{math.prod(extents):,}")  # fmt: skip
    values = dict(zip(names, np.indices(extents).reshape(len(extents), -1), strict=True))
    inside = np.ones(math.prod(extents), bool)
    for guard in nest.guards:
        inside &= guard.sum.only(frozenset(names)).at(values) < guard.bound
    return {name: value[inside] for name, value in values.items()}


def _different(columns: Sequence[np.ndarray]) -> int:
    """Return how many rows differ."""
    code = np.zeros(columns[0].shape, np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        _, code = np.unique(code * (high - low + 1) + (column - low), return_inverse=True)
    return int(code.max()) + 1
