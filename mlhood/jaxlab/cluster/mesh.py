"""Meshes of devices with named axes, and arrays sharded over them."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import jax
import numpy as np
from jax.sharding import AxisType, Mesh, NamedSharding, PartitionSpec

from mlhood.errors import ClusterError


def mesh(**axes: int) -> Mesh:
    """Return a mesh of devices with the given sizes of its axes: `mesh(data=2, model=4)`.

    Devices along the last axis are adjacent in the list of devices, hence in one process where there are several. Axes
    are automatic: XLA propagates the shardings of arguments and results to the values in between.

    Args:
        axes: Devices along each axis.

    Raises:
        ClusterError: There are too few devices, or an axis has none.
    """
    available = jax.devices()  # the mesh takes the first of them
    needed = math.prod(axes.values())
    if not axes or min(axes.values()) < 1 or needed > len(available):
        raise ClusterError(
            "invalid shape of the mesh",
            expected=f"axes of 1 device or more, at most {len(available)} in total",
            got=" x ".join(f"{name}={count}" for name, count in axes.items()) or "no axis",
            todo='jax.config.update("jax_num_cpu_devices", 8), before JAX is first used; or mlhood cluster -n 2',
        )
    grid = np.array(available[:needed], dtype=object).reshape(tuple(axes.values()))
    return Mesh(grid, tuple(axes), axis_types=(AxisType.Auto,) * len(axes))


def shard(mesh: Mesh, arrays: Mapping[str, Any], specs: Mapping[str, PartitionSpec]) -> dict[str, jax.Array]:
    """Shard arrays over a mesh; each process provides the shards of its own devices.

    Args:
        mesh: The devices.
        arrays: NumPy arrays by name, the same in every process.
        specs: The partition of each array; arrays without one are replicated.

    Raises:
        ClusterError: The size of an array is not divisible by that of its mesh axis.
    """
    sharded = {}
    for name, value in arrays.items():
        array, spec = np.asarray(value), specs.get(name, PartitionSpec())
        try:
            sharded[name] = jax.make_array_from_callback(array.shape, NamedSharding(mesh, spec), array.__getitem__)
        except ValueError as error:
            raise ClusterError(
                "the array cannot be divided into equal shards",
                where=name,
                expected=f"sizes divisible by the mesh {dict(mesh.shape)}",
                got=f"{array.shape} partitioned by {spec}",
            ) from error
    return sharded
