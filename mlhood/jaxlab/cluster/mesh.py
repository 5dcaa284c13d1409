"""Devices in rows and columns: a mesh whose axes have names, and arrays laid on it."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mlhood.errors import ClusterError


def mesh(devices: Sequence[Any] | None = None, **axes: int) -> Mesh:
    """Return a mesh of devices in rows, columns and so on, by the names of the axes: `mesh(data=2, model=4)`.

    The last axis's devices are neighbours in the list of devices, hence of one process where there are several. Axes
    are automatic: XLA works out how values between the arguments and the results are split.

    Args:
        devices: The first of them are used; all that JAX has if left out.
        axes: Devices along each axis.

    Raises:
        ClusterError: There are fewer devices than that, or none are asked for.
    """
    known = jax.devices() if devices is None else list(devices)
    needed = math.prod(axes.values())
    if not axes or min(axes.values()) < 1 or needed > len(known):
        raise ClusterError(
            "there is no such mesh",
            expected=f"axes of 1 device or more, {len(known)} in all",
            got=" x ".join(f"{name}={count}" for name, count in axes.items()) or "no axis",
            todo='jax.config.update("jax_num_cpu_devices", 8), before JAX is first used; or mlhood cluster -n 2',
        )
    grid = np.array(known[:needed], dtype=object).reshape(tuple(axes.values()))
    return Mesh(grid, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def lay(mesh: Mesh, values: Mapping[str, Any], specs: Mapping[str, PartitionSpec]) -> dict[str, jax.Array]:
    """Lay arrays on a mesh, each process giving its own devices' parts.

    Args:
        mesh: The devices.
        values: NumPy arrays by name, the same in every process.
        specs: How each is split; one without is copied to all devices.

    Raises:
        ClusterError: An axis of an array does not fall into equal parts.
    """
    return {name: _laid(mesh, name, np.asarray(one), specs.get(name, PartitionSpec())) for name, one in values.items()}


def _laid(mesh: Mesh, name: str, value: np.ndarray, spec: PartitionSpec) -> jax.Array:
    try:
        return jax.make_array_from_callback(value.shape, NamedSharding(mesh, spec), lambda index: value[index])
    except ValueError as error:
        raise ClusterError(
            "this array does not fall into equal parts",
            where=name,
            expected=f"sizes that the mesh divides: {dict(mesh.shape)}",
            got=f"{value.shape} split by {spec}",
        ) from error
