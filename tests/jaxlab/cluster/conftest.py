"""Shared by the tests of the cluster: eight devices on one CPU, configured before JAX is first used."""

import jax
import pytest
from jax.sharding import AxisType

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="session")
def mesh_2x4():
    """Two rows of four devices."""
    return jax.make_mesh((2, 4), ("data", "model"), axis_types=(AxisType.Auto, AxisType.Auto))
