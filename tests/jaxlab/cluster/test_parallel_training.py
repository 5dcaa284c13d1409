"""Two layers on eight devices: as one device has it, as torch has it, with the collectives that were predicted."""

import jax
import numpy as np
import pytest
import torch

from mlhood.errors import ClusterError
from mlhood.jaxlab.cluster import parallel
from mlhood.jaxlab.cluster.collectives import by_axis, collectives
from mlhood.jaxlab.cluster.mesh import mesh
from mlhood.jaxlab.xla.views import view

SHAPES = {"data": (8, 1), "model": (1, 8), "both": (2, 4), "square": (2, 2)}


@pytest.fixture(scope="module")
def by_torch(batch):
    params, x, y = batch
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    hidden = torch.relu(torch.tensor(x) @ weights["w1"] + weights["b1"])
    loss = torch.nn.functional.cross_entropy(hidden @ weights["w2"] + weights["b2"], torch.tensor(y).long())
    loss.backward()
    return loss.item(), {name: value.grad.numpy() for name, value in weights.items()}


@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize("make", [parallel.by_jit, parallel.by_shard_map])
def test_split_in_any_way_the_gradient_is_the_same_and_moves_what_was_predicted(make, shape, batch, by_torch):
    rows, columns = SHAPES[shape]
    devices = mesh(data=rows, model=columns)
    gradient, arguments = make(devices), parallel.laid(devices, *batch)
    loss, found = gradient(*arguments)
    np.testing.assert_allclose(loss, by_torch[0], rtol=1e-5)
    for name, value in by_torch[1].items():
        np.testing.assert_allclose(found[name], value, rtol=1e-4, atol=1e-6)
        assert found[name].sharding.is_equivalent_to(arguments[0][name].sharding, value.ndim)

    exchanges = collectives(view(gradient, *arguments).module("optimized"))
    assert {one.kind for one in exchanges} == {"all-reduce"}
    assert by_axis(exchanges, devices) == parallel.expected(devices.shape, batch[0], len(batch[1]))


def test_momentum_is_torchs():
    start, change = np.float32([1, -2]), np.float32([0.5, 0.25])
    weight = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    params, velocity = {"w": start}, {"w": np.zeros(2, np.float32)}
    for _ in range(3):
        weight.grad = torch.tensor(change)
        optimizer.step()
        params, velocity = parallel.momentum(params, velocity, {"w": change})
    np.testing.assert_allclose(params["w"], weight.detach().numpy(), rtol=1e-6)


def test_one_device_exchanges_nothing(batch):
    assert parallel.expected({"data": 1, "model": 1}, batch[0], 16) == {"data": 0, "model": 0}


def test_a_batch_that_does_not_fall_into_parts_is_refused(batch, of_both):
    params, x, y = batch
    with pytest.raises(ClusterError, match="equal parts"):
        parallel.laid(of_both, params, x[:15], y[:15])


def test_the_start_depends_on_the_seed_only():
    one, same, other = parallel.init(1), parallel.init(1), parallel.init(2)
    assert jax.tree.all(jax.tree.map(np.array_equal, one, same))
    assert not np.array_equal(one["w1"], other["w1"])
