"""ResNet over a namespace of operators: the same for NumPy and JAX, and torch's for every kind of block."""

from types import SimpleNamespace

import jax
import numpy as np
import pytest
import torch

from mlhood.errors import XlaError
from mlhood.jaxlab.operators import network, no_jax
from mlhood.jaxlab.operators.resnet import from_torch, logits
from mlhood.models import photographs, resnet18, resnet34, resnet50
from mlhood.models.resnet import BasicBlock, Bottleneck, ResNet


def used(model):
    """Give the normalisations statistics and weights of their own, as training does; unused ones do nothing."""
    torch.manual_seed(0)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            for value, low, high in (
                (module.weight, 0.5, 1.0), (module.bias, -0.2, 0.2),
                (module.running_mean, -0.2, 0.2), (module.running_var, 0.5, 2.0),
            ):  # fmt: skip
                torch.nn.init.uniform_(value, low, high)
    return model.eval()


def params_of(model):
    return network.tree({name: value.numpy() for name, value in model.state_dict().items()})


def torchs(model, x):
    with torch.no_grad():
        return model(torch.from_numpy(x)).numpy()


def is_close(got, expected):
    assert got.shape == expected.shape
    assert np.abs(np.asarray(got) - expected).max() <= 1e-4 * np.abs(expected).max()


@pytest.mark.parametrize("make", [resnet18, resnet50])
def test_logits_of_a_photograph_are_torchs(make):
    model, x = used(make()), photographs()[:1]
    expected = torchs(model, x)
    is_close(network.forward(no_jax, params_of(model), x), expected)
    is_close(jax.jit(logits)(from_torch(model), x), expected)


def test_any_size_and_number_of_images_will_do():
    model, x = used(resnet18(classes=7)), np.random.default_rng(0).standard_normal((2, 3, 45, 64), np.float32)
    is_close(network.forward(no_jax, params_of(model), x), torchs(model, x))


def test_more_than_ten_blocks_come_in_order():
    model, x = used(ResNet(BasicBlock, (1, 1, 12, 1), 3)), np.ones((1, 3, 32, 32), np.float32)
    params = params_of(model)
    params["layer3"] = dict(sorted(params["layer3"].items()))  # "10" before "2", as JAX sorts a tree
    is_close(network.forward(no_jax, params, x), torchs(model, x))


@pytest.mark.parametrize("kind", [BasicBlock, Bottleneck])
@pytest.mark.parametrize(("number", "stride"), [(0, 2), (1, 1)], ids=["projection", "identity"])
def test_a_block_is_torchs(kind, number, stride):
    model = used(ResNet(kind, (1, 2, 1, 1))).layer2[number]
    x = np.random.default_rng(0).standard_normal((2, model.conv1.in_channels, 9, 11), np.float32)
    is_close(network.block(no_jax, params_of(model), x, stride), torchs(model, x))


def test_the_operators_are_those_of_the_namespace():
    called = []

    def watched(name):
        return lambda *arguments, **options: called.append(name) or getattr(no_jax, name)(*arguments, **options)

    names = ("conv2d", "batch_norm", "relu", "max_pool", "add", "global_average_pool", "dense")
    ops = SimpleNamespace(**{name: watched(name) for name in names})
    network.forward(ops, params_of(resnet34(classes=2).eval()), np.zeros((1, 3, 32, 32), np.float32))
    assert {name: called.count(name) for name in names} == {
        "conv2d": 36, "batch_norm": 36, "relu": 33, "max_pool": 1, "add": 16, "global_average_pool": 1, "dense": 1
    }  # fmt: skip


def test_a_tree_has_no_counters():
    tree = network.tree({"a.0.weight": 1, "a.0.num_batches_tracked": 2, "b": 3})
    assert tree == {"a": {"0": {"weight": 1}}, "b": 3}


def test_names_that_contradict_each_other_are_refused():
    with pytest.raises(XlaError, match="an array and for a tree"):
        network.tree({"a": 1, "a.b": 2})
