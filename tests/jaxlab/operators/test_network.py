"""ResNet over a namespace of operators: NumPy, JAX and torch agree for every kind of block."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

from mlhood.jaxlab.operators import network, no_jax
from mlhood.jaxlab.operators.resnet import from_torch, logits
from mlhood.models import photographs, resnet18, resnet50
from mlhood.models.resnet import BasicBlock, Bottleneck, ResNet


def with_statistics(model):
    """Randomise statistics and weights of the batch normalisations, which are the identity when untrained."""
    torch.manual_seed(0)
    limits = {"weight": (0.5, 1.0), "bias": (-0.2, 0.2), "running_mean": (-0.2, 0.2), "running_var": (0.5, 2.0)}
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for name, (low, high) in limits.items():
                torch.nn.init.uniform_(getattr(module, name), low, high)
    return model.eval()


def params_of(model):
    return network.tree({name: value.numpy() for name, value in model.state_dict().items()})


def in_torch(model, x):
    with torch.no_grad():
        return model(torch.from_numpy(x)).numpy()


def assert_close(got, expected):
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize(("make", "size"), [(resnet18, 224), (resnet50, 64)])
def test_logits_of_a_photograph_match_torch(make, size):
    model, x = with_statistics(make()), np.ascontiguousarray(photographs()[:1, :, :size, :size])
    expected = in_torch(model, x)
    assert_close(network.forward(no_jax, params_of(model), x), expected)
    assert_close(jax.jit(logits)(from_torch(model), x), expected)


def test_any_image_size_and_batch_size():
    model = with_statistics(resnet18(classes=7))
    x = np.random.default_rng(0).standard_normal((2, 3, 45, 64), np.float32)
    assert_close(network.forward(no_jax, params_of(model), x), in_torch(model, x))


def test_more_than_ten_blocks_run_in_order():
    model, x = with_statistics(ResNet(BasicBlock, (1, 1, 12, 1), 3)), np.ones((1, 3, 32, 32), np.float32)
    params = params_of(model)
    params["layer3"] = dict(sorted(params["layer3"].items()))  # "10" before "2", as JAX sorts a tree
    assert_close(network.forward(no_jax, params, x), in_torch(model, x))


@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck])
@pytest.mark.parametrize(("index", "stride"), [(0, 2), (1, 1)], ids=["projection", "identity"])
def test_a_block_matches_torch(kind, index, stride):
    model = with_statistics(ResNet(kind, (1, 2, 1, 1))).layer2[index]
    x = np.random.default_rng(0).standard_normal((2, model.conv1.in_channels, 9, 11), np.float32)
    assert_close(network.block(no_jax, params_of(model), x, stride), in_torch(model, x))


def test_the_operators_are_those_of_the_namespace():
    calls = []

    def recorded(name):
        return lambda *arguments, **options: calls.append(name) or getattr(no_jax, name)(*arguments, **options)

    expected = {"conv2d": 36, "batch_norm": 36, "relu": 33, "max_pool": 1, "add": 16}
    expected |= {"global_average_pool": 1, "dense": 1}
    ops = SimpleNamespace(**{name: recorded(name) for name in expected})
    network.forward(ops, params_of(ResNet(BasicBlock, (3, 4, 6, 3), 2).eval()), np.zeros((1, 3, 32, 32), np.float32))
    assert {name: calls.count(name) for name in expected} == expected


def test_a_tree_has_no_batch_counters():
    tree = network.tree({"a.0.weight": 1, "a.0.num_batches_tracked": 2, "b": 3})
    assert tree == {"a": {"0": {"weight": 1}}, "b": 3}
