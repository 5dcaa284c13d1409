"""Whole networks: gradients by all parameters against `jax.grad` and torch, and forward mode against reverse mode."""

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

DRAW = np.random.default_rng(0)


def state_of(model):
    return tree({name: value.numpy(force=True) for name, value in model.state_dict().items()})


def trained_statistics(model):
    """Give normalisations statistics and factors that are not 0 and 1."""
    generator = torch.Generator().manual_seed(1)
    for name, value in [*model.named_parameters(), *model.named_buffers()]:
        if "bn" in name or "downsample.1" in name:
            if name.endswith("running_var"):
                value.data = 0.5 + torch.rand(value.shape, generator=generator)
            elif value.dim():
                value.data = torch.randn(value.shape, generator=generator) * 0.5
    return model.eval()


def assert_close(mine, theirs, name=""):
    scale = np.abs(theirs).max()
    assert scale > 0, name
    np.testing.assert_allclose(mine, theirs, rtol=1e-3, atol=2e-5 * scale, err_msg=name)


def assert_trees(mine, theirs):
    assert jax.tree.structure(mine) == jax.tree.structure(theirs)
    for (path, one), other in zip(jax.tree.leaves_with_path(mine), jax.tree.leaves(theirs), strict=True):
        assert_close(one, np.asarray(other), jax.tree_util.keystr(path))


def cross_entropy(logits, labels):
    return -jnp.take_along_axis(jax.nn.log_softmax(logits), labels[:, None], 1).mean()


@pytest.fixture(scope="module")
def lenet():
    torch.manual_seed(0)
    model = LeNet()
    data = digits()
    x, labels = np.asarray(data.test_images[:4], np.float32), np.asarray(data.test_labels[:4])
    return model, state_of(model), x, labels


def lenet_loss(params, x, labels):
    return ad.cross_entropy(ad.lenet(ad, params, x), labels)


def test_the_written_lenet_is_torchs(lenet):
    model, params, x, _ = lenet
    assert_close(ad.lenet(ad, params, x), model(torch.tensor(x)).numpy(force=True))


def test_lenets_gradients_are_those_of_jax_and_of_torch(lenet):
    model, params, x, labels = lenet
    value, mine = ad.value_and_grad(lenet_loss)(params, x, labels)
    in_jax = jax.value_and_grad(lambda params, x, labels: cross_entropy(ad.lenet(with_jax, params, x), labels))
    expected, theirs = jax.jit(in_jax)(params, x, labels)
    assert value == pytest.approx(float(expected), rel=1e-5)
    assert len(jax.tree.leaves(mine)) == 10
    assert_trees(mine, theirs)

    model.zero_grad()
    torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(labels)).backward()
    assert_trees(mine, tree({name: one.grad.numpy() for name, one in model.named_parameters()}))


def test_lenets_tape_has_a_line_for_each_operation(lenet):
    _, params, x, labels = lenet
    tape = ad.Tape()
    ad.cross_entropy(ad.lenet(ad, params, tape.value(x)), labels)
    convolution, hidden = ["conv2d", "relu", "max_pool"], ["dense", "relu"]
    assert [one.op for one in tape.entries] == [
        *convolution, *convolution, "reshape", *hidden, *hidden, "dense", "cross_entropy",
    ]  # fmt: skip


def test_lenet_runs_on_dual_numbers(lenet):
    _, params, x, labels = lenet
    direction = jax.tree.map(lambda one: DRAW.standard_normal(one.shape).astype(np.float32), params)
    value, tangent = ad.jvp(lambda params: lenet_loss(params, x, labels), (params,), (direction,))
    expected, gradient = ad.value_and_grad(lenet_loss)(params, x, labels)
    assert value == pytest.approx(expected)
    parts = jax.tree.map(lambda g, u: float((g * u).sum()), gradient, direction)
    assert tangent == pytest.approx(sum(jax.tree.leaves(parts)), rel=1e-3)


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
def test_a_residual_blocks_gradients_are_those_of_jax_and_of_torch(make, channels, stride):
    torch.manual_seed(0)
    model = trained_statistics(make())
    params = state_of(model)
    x = DRAW.standard_normal((2, channels, 9, 10)).astype(np.float32)
    weights = DRAW.standard_normal(block(ad, params, x, stride).shape).astype(np.float32)

    def loss(ops, params, x):
        return (block(ops, params, x, stride) * weights).sum()

    mine = ad.grad(lambda *given: loss(ad, *given), argnums=(0, 1))(params, x)
    assert_trees(mine, jax.jit(jax.grad(lambda *given: loss(with_jax, *given), argnums=(0, 1)))(params, x))

    known = torch.tensor(x, requires_grad=True)
    (model(known) * torch.tensor(weights)).sum().backward()
    assert_close(mine[1], known.grad.numpy(), "x")
    theirs = {name: one.grad.numpy() for name, one in model.named_parameters()}
    for name, one in theirs.items():
        assert_close(_at(mine[0], name), one, name)

    direction = jax.tree.map(lambda one: DRAW.standard_normal(one.shape).astype(np.float32), (params, x))
    _, tangent = ad.jvp(lambda *given: loss(ad, *given), (params, x), direction)
    parts = jax.tree.map(lambda g, u: float((g * u).sum()), mine, direction)
    assert tangent == pytest.approx(sum(jax.tree.leaves(parts)), rel=1e-3)


def _at(params, name):
    for part in name.split("."):
        params = params[part]
    return params


def test_a_small_resnet_goes_through_as_it_is():
    torch.manual_seed(0)
    model = trained_statistics(ResNet(BasicBlock, (1, 1, 1, 1), classes=5))
    params = state_of(model)
    x, labels = DRAW.standard_normal((2, 3, 33, 33)).astype(np.float32), np.array([1, 3])
    value, mine = ad.value_and_grad(lambda params: ad.cross_entropy(forward(ad, params, x), labels))(params)
    loss = torch.nn.functional.cross_entropy(model(torch.tensor(x)), torch.tensor(labels))
    loss.backward()
    assert value == pytest.approx(float(loss.detach()), rel=1e-4)
    for name, one in model.named_parameters():
        assert_close(_at(mine, name), one.grad.numpy(), name)
