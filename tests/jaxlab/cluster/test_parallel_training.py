"""Two layers on eight devices: the gradient matches torch's, the collectives match the prediction."""

import jax
import numpy as np
import pytest
import torch
from jax.sharding import PartitionSpec as P

from mlhood.jaxlab.cluster import program
from mlhood.jaxlab.cluster.collectives import collectives
from mlhood.jaxlab.cluster.program import mesh, shard
from mlhood.jaxlab.xla.views import view

SHAPES = {"data": (8, 1), "model": (1, 8), "both": (2, 4), "square": (2, 2)}


@pytest.fixture(scope="module")
def in_torch(batch):
    params, x, y = batch
    weights = {name: torch.tensor(value, requires_grad=True) for name, value in params.items()}
    hidden = torch.relu(torch.tensor(x) @ weights["w1"] + weights["b1"])
    loss = torch.nn.functional.cross_entropy(hidden @ weights["w2"] + weights["b2"], torch.tensor(y).long())
    loss.backward()
    return loss.item(), {name: value.grad.numpy() for name, value in weights.items()}


@pytest.mark.parametrize("shape", SHAPES)
def test_the_gradient_matches_torch_and_the_bytes_are_those_of_the_shards_on_any_mesh(shape, batch, in_torch):
    rows, columns = SHAPES[shape]
    devices = mesh(data=rows, model=columns)
    gradient, params = program.by_jit(devices), shard(devices, batch[0], program.SPECS)
    arguments = params, *program.shard_batch(devices, *batch[1:])
    loss, gradients = gradient(*arguments)
    np.testing.assert_allclose(loss, in_torch[0], rtol=1e-5)
    for name, expected in in_torch[1].items():
        np.testing.assert_allclose(gradients[name], expected, rtol=1e-4, atol=1e-6)
        assert gradients[name].sharding.is_equivalent_to(params[name].sharding, expected.ndim)

    found = collectives(view(gradient, *arguments).module("optimized"))
    assert {collective.kind for collective in found} == {"all-reduce"}
    sent = [collective for collective in found if collective.devices > 1]
    by_axis = {axis: sum(each.bytes for each in sent if each.axes(devices) == (axis,)) for axis in devices.axis_names}
    # along "data" the loss and the gradients of a device's weights, along "model" its partial sums of the 10 outputs
    held = 4 + sum(weight.addressable_shards[0].data.nbytes for weight in params.values())
    outputs = 4 * 10 * len(batch[2]) // rows
    assert by_axis == {"data": held if rows > 1 else 0, "model": outputs if columns > 1 else 0}


def test_momentum_matches_torch():
    start, gradient = np.float32([1, -2]), np.float32([0.5, 0.25])
    weight = torch.nn.Parameter(torch.tensor(start))
    optimizer = torch.optim.SGD([weight], lr=0.1, momentum=0.9)
    params, velocity = {"w": start}, {"w": np.zeros(2, np.float32)}
    for _ in range(3):
        weight.grad = torch.tensor(gradient)
        optimizer.step()
        params, velocity = program.momentum(params, velocity, {"w": gradient})
    np.testing.assert_allclose(params["w"], weight.detach().numpy(), rtol=1e-6)


def test_devices_along_the_last_axis_are_adjacent(mesh_2x4):
    assert dict(mesh_2x4.shape) == {"data": 2, "model": 4}
    assert [device.id for device in mesh_2x4.devices[0]] == [0, 1, 2, 3]


def test_each_device_holds_its_shard(mesh_2x4):
    arrays = {"w": np.arange(48.0, dtype=np.float32).reshape(4, 12), "b": np.arange(3)}
    sharded = shard(mesh_2x4, arrays, {"w": P("data", "model")})
    for name, array in arrays.items():
        np.testing.assert_array_equal(sharded[name], array)
    shards = {part.device.id: np.asarray(part.data) for part in sharded["w"].addressable_shards}
    np.testing.assert_array_equal(shards[6], arrays["w"][2:, 6:9])
    assert sharded["b"].is_fully_replicated


def test_initial_weights_depend_only_on_the_seed():
    params, same, other = program.init(1), program.init(1), program.init(2)
    assert jax.tree.all(jax.tree.map(np.array_equal, params, same))
    assert not np.array_equal(params["w1"], other["w1"])
