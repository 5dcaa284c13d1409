"""ResNet in JAX against torch."""

import jax
import numpy as np
import pytest
import torch

from mlhood.jaxlab.errors import XlaError
from mlhood.jaxlab.resnet import from_torch, logits
from mlhood.models import LeNet, photographs, resnet18, resnet50


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
