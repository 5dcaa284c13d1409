"""Shared by the tests of the cluster: eight devices on one CPU, configured before JAX is first used."""

import jax
import numpy as np
import pytest

from mlhood.jaxlab.cluster import program
from mlhood.jaxlab.cluster.program import mesh

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="session")
def mesh_2x4():
    """Two rows of four devices."""
    return mesh(data=2, model=4)


@pytest.fixture(scope="session")
def batch():
    """Weights, and a batch of 16."""
    rng = np.random.default_rng(5)
    x = rng.standard_normal((16, 16)).astype(np.float32)
    return program.init(3), x, rng.integers(0, 10, 16).astype(np.int32)
