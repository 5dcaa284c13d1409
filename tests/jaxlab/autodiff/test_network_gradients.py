"""Networks: gradients with respect to all parameters against `jax.grad` and torch."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from mlhood.jaxlab import autodiff as ad
from mlhood.jaxlab.operators import with_jax
from mlhood.jaxlab.operators.network import block, forward, tree
from mlhood.models import LeNet, digits
from mlhood.models.resnet import BasicBlock, Bottleneck, ResNet
from tests.jaxlab.autodiff.gradients import value_and_gradients

RNG = np.random.default_rng(0)


def state_of(model):
    return tree({name: value.numpy(force=True) for name, value in model.state_dict().items()})


def with_statistics(model):
    """Randomise statistics and weights of the batch normalisations, which are the identity when untrained."""
    generator = torch.Generator().manual_seed(1)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if "bn" in name or "downsample.1" in name:
            if name.endswith("running_var"):
                value.data = 0.5 + torch.rand(value.shape, generator=generator)
            elif value.dim():
                value.data = torch.randn(value.shape, generator=generator) * 0.5
    return model.eval()


def assert_close(got, expected, name=""):
    scale = np.abs(expected).max()
    assert scale > 0, name
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=2e-5 * scale, err_msg=name)


def assert_trees_close(got, expected):
    assert jax.tree.structure(got) == jax.tree.structure(expected)
    for (path, leaf), wanted in zip(jax.tree.leaves_with_path(got), jax.tree.leaves(expected), strict=True):
        assert_close(leaf, np.asarray(wanted), jax.tree_util.keystr(path))


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@pytest.fixture(scope="module")
def lenet():
    torch.manual_seed(0)
    model = LeNet()
    data = digits()
    x, labels = np.asarray(data.test_images[:4], np.float32), np.asarray(data.test_labels[:4])
    return model, state_of(model), x, labels


def test_lenet_matches_torch(lenet):
    model, params, x, _ = lenet
    assert_close(ad.lenet(ad, params, x), model(torch.tensor(x)).numpy(force=True))


def test_lenets_gradients_match_jax_and_torch(lenet):
    model, params, x, labels = lenet
    value, gradient = value_and_gradients(lambda tree: ad.cross_entropy(ad.lenet(ad, tree, x), labels), params)
    in_jax = jax.value_and_grad(lambda params, x, labels: cross_entropy(ad.lenet(with_jax, params, x), labels))
    expected_value, expected = jax.jit(in_jax)(params, x, labels)
    assert value == pytest.approx(float(expected_value), rel=1e-5)
    assert len(jax.tree.leaves(gradient)) == 10
    assert_trees_close(gradient, expected)

    model.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(labels)).backward()
    assert_trees_close(gradient, tree({name: param.grad.numpy() for name, param in model.named_parameters()}))


def test_lenets_tape_has_an_entry_for_each_operation(lenet):
    _, params, x, labels = lenet
    tape = ad.Tape()
    ad.cross_entropy(ad.lenet(ad, params, tape.value(x)), labels)
    convolutions, hidden = 2 * ["conv2d", "relu", "max_pool"], 2 * ["dense", "relu"]
    assert [entry.op for entry in tape.entries] == [*convolutions, "reshape", *hidden, "dense", "cross_entropy"]


def projection(channels, filters, stride):
    return torch.nn.Sequential(torch.nn.Conv2d(channels, filters, 1, stride, bias=False), torch.nn.BatchNorm2d(filters))


@pytest.mark.parametrize(
    ("make", "channels", "stride"),
    [
        (lambda: BasicBlock(8, 8, 1, None), 8, 1),
        (lambda: BasicBlock(6, 8, 2, projection(6, 8, 2)), 6, 2),
        (lambda: Bottleneck(6, 4, 2, projection(6, 16, 2)), 6, 2),
    ],
    ids=["plain", "projection", "bottleneck"],
)
def test_a_residual_blocks_gradients_match_jax_and_torch(make, channels, stride):
    torch.manual_seed(0)
    model = with_statistics(make())
    params = state_of(model)
    x = RNG.standard_normal((2, channels, 9, 10)).astype(np.float32)
    weights = RNG.standard_normal(block(ad, params, x, stride).shape).astype(np.float32)

    def loss(ops, params, x):
        return (block(ops, params, x, stride) * weights).sum()

    _, *gradients = value_and_gradients(lambda *arguments: loss(ad, *arguments), params, x)
    in_jax = jax.jit(jax.grad(lambda *arguments: loss(with_jax, *arguments), argnums=(0, 1)))
    assert_trees_close(tuple(gradients), in_jax(params, x))

    tensor = torch.tensor(x, requires_grad=True)
    (model(tensor) * torch.tensor(weights)).sum().backward()
    assert_close(gradients[1], tensor.grad.numpy(), "x")
    for name, param in model.named_parameters():
        assert_close(leaf_at(gradients[0], name), param.grad.numpy(), name)


def leaf_at(tree, path):
    for key in path.split("."):
        tree = tree[key]
    return tree


def test_a_small_resnet_can_be_differentiated():
    torch.manual_seed(0)
    model = with_statistics(ResNet(BasicBlock, (1, 1, 1, 1), classes=5))
    params = state_of(model)
    x, labels = RNG.standard_normal((2, 3, 33, 33)).astype(np.float32), np.array([1, 3])
    value, gradient = value_and_gradients(lambda tree: ad.cross_entropy(forward(ad, tree, x), labels), params)
    loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(labels))
    loss.backward()
    assert value == pytest.approx(float(loss.detach()), rel=1e-4)
    for name, param in model.named_parameters():
        assert_close(leaf_at(gradient, name), param.grad.numpy(), name)
