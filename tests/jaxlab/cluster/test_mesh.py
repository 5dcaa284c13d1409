"""Meshes of devices, and arrays sharded over them."""

import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.mesh import mesh, shard


def test_devices_along_the_last_axis_are_adjacent(mesh_2x4):
    assert dict(mesh_2x4.shape) == {"data": 2, "model": 4}
    assert [device.id for device in mesh_2x4.devices[0]] == [0, 1, 2, 3]


@pytest.mark.parametrize("axes", [{}, {"data": 0}, {"data": -1, "model": -2}, {"data": 3, "model": 3}])
def test_invalid_shapes_of_a_mesh_are_rejected(axes):
    with pytest.raises(ClusterError, match="invalid shape of the mesh"):
        mesh(**axes)


def test_each_device_holds_its_shard(mesh_2x4):
    arrays = {"w": np.arange(48.0, dtype=np.float32).reshape(4, 12), "b": np.arange(3)}
    sharded = shard(mesh_2x4, arrays, {"w": P("data", "model")})
    for name, array in arrays.items():
        np.testing.assert_array_equal(sharded[name], array)
    shards = {part.device.id: np.asarray(part.data) for part in sharded["w"].addressable_shards}
    np.testing.assert_array_equal(shards[6], arrays["w"][2:, 6:9])
    assert sharded["b"].is_fully_replicated


def test_arrays_that_cannot_be_divided_are_rejected(mesh_2x4):
    with pytest.raises(ClusterError, match="equal shards") as caught:
        shard(mesh_2x4, {"w": np.zeros((4, 6))}, {"w": P(None, "model")})
    assert "(4, 6)" in str(caught.value)
