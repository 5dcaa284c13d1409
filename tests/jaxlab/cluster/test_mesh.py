"""Meshes of devices, and arrays laid on them."""

import jax
import numpy as np
import pytest
from jax.sharding import PartitionSpec as P

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster.mesh import lay, mesh


def test_the_last_axis_has_neighbours(of_both):
    assert dict(of_both.shape) == {"data": 2, "model": 4}
    assert [device.id for device in of_both.devices[0]] == [0, 1, 2, 3]
    assert [device.id for device in mesh(jax.devices()[4:], data=2).devices] == [4, 5]


@pytest.mark.parametrize("axes", [{}, {"data": 0}, {"data": -1, "model": -2}, {"data": 3, "model": 3}])
def test_no_mesh_of_devices_that_are_not_there(axes):
    with pytest.raises(ClusterError, match="no such mesh"):
        mesh(**axes)


def test_each_device_holds_its_part(of_both):
    values = {"w": np.arange(48.0, dtype=np.float32).reshape(4, 12), "b": np.arange(3)}
    laid = lay(of_both, values, {"w": P("data", "model")})
    for name, value in values.items():
        np.testing.assert_array_equal(laid[name], value)
    parts = {part.device.id: np.asarray(part.data) for part in laid["w"].addressable_shards}
    np.testing.assert_array_equal(parts[6], values["w"][2:, 6:9])
    assert laid["b"].is_fully_replicated


def test_what_does_not_fall_into_equal_parts_is_refused(of_both):
    with pytest.raises(ClusterError, match="equal parts") as refused:
        lay(of_both, {"w": np.zeros((4, 6))}, {"w": P(None, "model")})
    assert "(4, 6)" in str(refused.value)
