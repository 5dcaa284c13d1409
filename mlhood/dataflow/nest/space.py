"""The iteration space: trip counts, the points in schedule order, and how many points and indices.

Loops that no guard and no index connects are independent, so the space is the product of such groups: one is a split
dimension, or a convolution's row and its kernel's row. A count therefore enumerates the groups one by one, and takes
as many steps as they have points in sum, not in product.

A guard `16*i_o + i_i < 60` need not be tested in the body. All coefficients are positive and every variable starts at
0, so the guard bounds each of its loops by an expression of the loops around it: `i_i < min(16, 60 - 16*i_o)` here, or
with the loops interchanged `i_o < (60 - i_i + 15) // 16`. No iteration is empty, and every point is visited.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Iterable, Sequence

import numpy as np

from mlhood.dataflow.nest.loop_nest import Affine, LoopNest
from mlhood.errors import NestError

MAX_VISITS = 1 << 20
MAX_POINTS = 1 << 22  # of one group


def trip_count(nest: LoopNest, name: str, outside: Collection[str]) -> str:
    """Return a loop's trip count in Python: the minimum of a constant and of expressions of the loops around it.

    Args:
        nest: The nest.
        name: The loop.
        outside: The loops around it, whose values are known.
    """
    constant, texts, around = nest.extents[name], [], frozenset(outside)
    for guard in nest.guards:
        factor, outer = guard.expression.coefficient(name), guard.expression.restrict(around)
        largest = outer.bounds(nest.extents)[1] + factor * (nest.extents[name] - 1)
        if not factor or largest < guard.bound:
            continue
        dividend = Affine(constant=guard.bound + factor - 1) + outer * -1
        if outer.terms:
            texts.append(str(dividend) if factor == 1 else f"({dividend}) // {factor}")
        else:
            constant = min(constant, dividend.constant // factor)
    return f"min({', '.join([str(constant), *texts])})" if texts else str(constant)


def visits(nest: LoopNest) -> np.ndarray:
    """Return the points of the iteration space in schedule order: int64 [points, original loops].

    Raises:
        NestError: If there are too many to list: this is for drawing and checking.
    """
    size = math.prod(nest.extents.values())
    if size > MAX_VISITS:
        expected = f"at most {MAX_VISITS:,}"
        raise NestError("too many points to list", expected=expected, got=f"{size:,}", todo="take a smaller case")
    values = _points(nest, nest.names)
    return np.stack([expression.evaluate(values) for expression in nest.origin], axis=1)


def count_points(nest: LoopNest, names: Iterable[str]) -> int:
    """Return how many combinations of values some loops take."""
    return count_distinct(nest, names, ())


def count_distinct(nest: LoopNest, names: Iterable[str], index: Sequence[Affine]) -> int:
    """Return how many distinct combinations there are of some loops' values and an index's values.

    Where the loops are those outside a tile, and the index is an array's, this is the tile's size, summed over all
    iterations of the loops outside.
    """
    keys = frozenset(names)
    total = 1
    for group in _groups(nest, keys.union(*(axis.variables for axis in index)), index):
        values = _points(nest, group)
        columns = [values[name] for name in group if name in keys]
        terms = [axis.restrict(frozenset(group)) for axis in index]
        total *= _distinct_rows(columns + [axis.evaluate(values) for axis in terms if axis.terms])
    return total


def _groups(nest: LoopNest, names: frozenset[str], index: Sequence[Affine]) -> list[list[str]]:
    """Return the connected components of some loops; a guard or an index connects its variables."""
    groups = [{name} for name in nest.names if name in names]
    guards = (guard.expression.variables & names for guard in nest.guards)
    for connected in (*guards, *(axis.variables for axis in index)):
        touched = [group for group in groups if group & connected]
        if len(touched) > 1:
            groups = [group for group in groups if group not in touched] + [set().union(*touched)]
    return [[name for name in nest.names if name in group] for group in groups]


def _points(nest: LoopNest, names: Sequence[str]) -> dict[str, np.ndarray]:
    """Return the combinations of values that some loops take, in the order in which these loops run."""
    extents = [nest.extents[name] for name in names]
    size = math.prod(extents)
    if size > MAX_POINTS:
        what, expected = "too many points to count these loops jointly", f"at most {MAX_POINTS:,} points"
        raise NestError(what, where=", ".join(names), expected=expected, got=f"{size:,}")
    values = dict(zip(names, np.indices(extents).reshape(len(extents), -1), strict=True))
    inside = np.ones(size, bool)
    for guard in nest.guards:
        inside &= guard.expression.restrict(frozenset(names)).evaluate(values) < guard.bound
    return {name: value[inside] for name, value in values.items()}


def _distinct_rows(columns: Sequence[np.ndarray]) -> int:
    """Return the number of distinct rows; numbering them column by column is faster than np.unique over an axis."""
    code = np.zeros(columns[0].shape, np.int64)
    for column in columns:
        low, high = int(column.min()), int(column.max())
        _, code = np.unique(code * (high - low + 1) + (column - low), return_inverse=True)
    return int(code.max()) + 1
