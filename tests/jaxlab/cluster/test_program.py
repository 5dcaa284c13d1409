"""The data and the loss of P5.11's step."""

import jax
import numpy as np

from mlhood.jaxlab.cluster import program


def test_data_depend_only_on_the_seed():
    data, same, other = program.data(1), program.data(1), program.data(2)
    assert jax.tree.all(jax.tree.map(np.array_equal, data, same))
    assert not np.array_equal(data.x, other.x)
    assert not np.array_equal(data.params["w1"], other.params["w1"])
    assert (data.x.shape, data.x.dtype, data.y.shape, data.y.dtype) == ((32, 16), np.float32, (32,), np.int32)
    assert set(data.y) <= set(range(10))
    assert np.isfinite(program.loss(*data))
