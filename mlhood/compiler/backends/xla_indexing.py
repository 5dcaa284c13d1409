"""Reads and writes at computed indices, blocks and cumulative sums in JAX; see `xla_operators`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import jax.numpy as jnp
import numpy as np

Array = Any  # of JAX, or traced
Rule = Callable[..., Any]

_METHODS = {"none": "set", "add": "add", "mul": "multiply", "max": "max", "min": "min"}


def _along(indices: Array, size: int, axis: int) -> tuple[Array, ...]:
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in indices.shape)])
    grid[axis] = jnp.where(indices < 0, indices + size, indices)
    return tuple(grid)


def _gather_elements(operator: Any, types: Any, x: Array, indices: Array) -> Array:
    return x[_along(indices, x.shape[operator.axis], operator.axis)]


def _scatter_elements(operator: Any, types: Any, x: Array, indices: Array, updates: Array) -> Array:
    places = x.at[_along(indices, x.shape[operator.axis], operator.axis)]
    return getattr(places, _METHODS[operator.reduction])(updates)


def _scatter_nd(operator: Any, types: Any, x: Array, indices: Array, updates: Array) -> Array:
    sizes = np.array(x.shape[: indices.shape[-1]])
    index = tuple(jnp.moveaxis(jnp.where(indices < 0, indices + sizes, indices), -1, 0))
    return getattr(x.at[index], _METHODS[operator.reduction])(updates)


def _reverse_sequence(operator: Any, types: Any, x: Array, lengths: Array) -> Array:
    batch, time = operator.batch_axis % x.ndim, operator.time_axis % x.ndim
    grid: list[Any] = list(np.ogrid[tuple(slice(n) for n in x.shape)])
    ends = lengths.reshape(-1, *(1,) * (x.ndim - 1 - batch))
    grid[time] = jnp.where(grid[time] < ends, ends - 1 - grid[time], grid[time])
    return x[tuple(grid)]


def _one_hot(operator: Any, types: Any, indices: Array, values: Array) -> Array:
    axis = operator.axis % (indices.ndim + 1)
    places = np.arange(operator.depth).reshape(-1, *(1,) * (indices.ndim - axis))
    whole = jnp.expand_dims(indices.astype(np.int64), axis)
    return jnp.where((whole == places) | (whole + operator.depth == places), values[1], values[0])


def _cumulative(function: Callable[..., Array]) -> Rule:
    def rule(operator: Any, types: Any, x: Array) -> Array:
        axis = operator.axis % x.ndim
        x = jnp.flip(x, axis) if operator.reverse else x
        if operator.exclusive and x.shape[axis]:
            one = [(1, 0) if i == axis else (0, 0) for i in range(x.ndim)]
            x = jnp.pad(x, one, constant_values=operator.neutral)
            x = x[(*(slice(None),) * axis, slice(-1))]
        y = function(x, axis)
        return jnp.flip(y, axis) if operator.reverse else y

    return rule


def _shared(operator: Any, types: Any, *arrays: Array) -> Array:
    return operator.evaluate(*arrays)


RULES: dict[str, Rule] = {
    "GatherElements": _gather_elements,
    "ScatterElements": _scatter_elements,
    "ScatterND": _scatter_nd,
    "ReverseSequence": _reverse_sequence,
    "OneHot": _one_hot,
    "DepthToSpace": _shared,
    "SpaceToDepth": _shared,
    "EyeLike": _shared,
    "CumSum": _cumulative(jnp.cumsum),
    "CumProd": _cumulative(jnp.cumprod),
}
