"""What the tests of the cluster share: eight devices on one CPU, asked for before JAX is first used."""

import jax
import numpy as np
import pytest

from mlhood.jaxlab.cluster import parallel
from mlhood.jaxlab.cluster.mesh import mesh

jax.config.update("jax_num_cpu_devices", 8)


@pytest.fixture(scope="session")
def of_both():
    """Two rows of four devices."""
    return mesh(data=2, model=4)


@pytest.fixture(scope="session")
def batch():
    """Weights, and a batch of 16."""
    draw = np.random.default_rng(5)
    x = draw.standard_normal((16, 16)).astype(np.float32)
    return parallel.init(3), x, draw.integers(0, 10, 16).astype(np.int32)
