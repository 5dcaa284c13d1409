"""The small networks: parameter counts from the literature, values from NumPy."""

import numpy as np
import pytest
import torch

from mlhood.models import MLP, LeNet, LeNetBN


@pytest.mark.parametrize(("network", "count"), [(MLP, 159_010), (LeNet, 61_706), (LeNetBN, 61_750)])
def test_parameter_count(network, count):
    assert sum(parameter.numel() for parameter in network().parameters()) == count


def test_lenet_has_the_layers_named_in_the_notebooks():
    shapes = {name: tuple(value.shape) for name, value in LeNet().state_dict().items()}
    assert shapes == {
        "conv1.weight": (6, 1, 5, 5),
        "conv1.bias": (6,),
        "conv2.weight": (16, 6, 5, 5),
        "conv2.bias": (16,),
        "fc1.weight": (120, 400),
        "fc1.bias": (120,),
        "fc2.weight": (84, 120),
        "fc2.bias": (84,),
        "fc3.weight": (10, 84),
        "fc3.bias": (10,),
    }


@pytest.mark.parametrize("network", [LeNet, LeNetBN])
@pytest.mark.parametrize("count", [1, 3])
def test_lenet_maps_images_to_logits(network, count):
    logits = network().eval()(torch.randn(count, 1, 32, 32))
    assert logits.shape == (count, 10)
    assert (logits < 0).any()  # raw logits: neither relu nor softmax at the end


def test_mlp_is_two_matrix_products():
    model = MLP()
    x = np.random.default_rng(0).normal(size=(4, 784)).astype(np.float32)
    w1, b1, w2, b2 = (parameter.detach().numpy() for parameter in model.parameters())
    expected = np.maximum(x @ w1.T + b1, 0) @ w2.T + b2
    np.testing.assert_allclose(model(torch.tensor(x)).detach().numpy(), expected, rtol=1e-4, atol=1e-5)
    assert model(torch.zeros(2, 1, 28, 28)).shape == (2, 10)


def test_lenet_bn_equals_lenet_if_the_normalisation_is_the_identity():
    plain, normalised = LeNet().eval(), LeNetBN().eval()
    normalised.load_state_dict(plain.state_dict(), strict=False)
    for bn in (normalised.bn1, normalised.bn2):
        bn.running_var.fill_(1 - bn.eps)
    x = torch.randn(2, 1, 32, 32)
    torch.testing.assert_close(normalised(x), plain(x))
