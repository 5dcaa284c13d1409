"""The convolution and ResNet in JAX against torch."""

import jax
import numpy as np
import pytest
import torch

from mlhood.errors import KernelError
from mlhood.jaxlab.errors import XlaError
from mlhood.jaxlab.resnet import conv2d, from_torch, logits
from mlhood.models import LeNet, photographs, resnet18, resnet50


@pytest.mark.parametrize(
    ("stride", "padding", "dilation", "groups"),
    [(1, 0, 1, 1), (2, 1, 1, 1), ((1, 2), (2, 1), 1, 2), (1, (1, 2, 0, 3), (2, 1), 1), (3, 1, 1, 4)],
)
def test_the_convolution_is_torchs(stride, padding, dilation, groups):
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 4, 9, 11)).astype(np.float32)
    w = rng.standard_normal((8, 4 // groups, 3, 2)).astype(np.float32)
    bias = rng.standard_normal(8).astype(np.float32)
    top, left, bottom, right = padding if np.size(padding) == 4 else np.broadcast_to(padding, 2).tolist() * 2
    padded = np.pad(x, ((0, 0), (0, 0), (top, bottom), (left, right)))
    tensors = (torch.from_numpy(one) for one in (padded, w, bias))
    expected = torch.nn.functional.conv2d(*tensors, stride=stride, dilation=dilation, groups=groups)
    got = conv2d(x, w, bias, stride, padding, dilation=dilation, groups=groups)
    np.testing.assert_allclose(got, expected.numpy(), rtol=1e-4, atol=1e-5)


def test_what_does_not_fit_is_refused():
    with pytest.raises(KernelError):
        conv2d(np.ones((1, 3, 4, 4), np.float32), np.ones((2, 4, 1, 1), np.float32))


def used(model: torch.nn.Module) -> torch.nn.Module:
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


@pytest.mark.parametrize("make", [resnet18, resnet50])
def test_logits_of_a_photograph_are_torchs(make):
    model, x = used(make()), photographs()[:1]
    with torch.no_grad():
        expected = model(torch.from_numpy(x)).numpy()
    got = np.asarray(jax.jit(logits)(from_torch(model), x))
    assert got.shape == (1, 1000)
    assert np.abs(got - expected).max() <= 1e-4 * np.abs(expected).max()


def test_a_state_dict_does_as_well_and_holds_all_parameters():
    model = resnet18(classes=10)
    params = from_torch(model.state_dict())
    counted = sum(leaf.size for leaf in jax.tree.leaves(params))
    buffers = sum(value.numel() for name, value in model.named_buffers() if "running" in name)
    assert counted == sum(value.numel() for value in model.parameters()) + buffers
    assert [len(params[f"layer{i}"]) for i in range(1, 5)] == [2, 2, 2, 2]


@pytest.mark.parametrize("model", [LeNet(), {}, "resnet18"])
def test_what_is_no_resnet_is_refused(model):
    with pytest.raises(XlaError, match="not a ResNet"):
        from_torch(model)
