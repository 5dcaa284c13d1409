"""The layers are those of the networks, and the direct kernel computes them."""

from collections import Counter

import numpy as np
import pytest
import torch
from torch import nn

from mlhood.kernels import CONV2D
from mlhood.kernels.layers import NETWORKS, Layer, distinct, resnet50
from mlhood.models import resnet50 as model


def test_the_layers_are_the_models():
    layers = []

    def record(module: nn.Module, inputs: tuple[torch.Tensor, ...], _: object) -> None:
        channels, size = inputs[0].shape[1:3]
        layers.append(Layer(channels, size, module.out_channels, module.kernel_size[0], module.stride[0]))

    network = model().eval()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(record)
    with torch.inference_mode():
        network(torch.zeros(1, 3, 224, 224))
    assert Counter(resnet50()) == Counter(layers)
    assert len(distinct(resnet50())) == 23


@pytest.mark.parametrize(
    ("network", "convolutions", "millions"),
    [("resnet50", 53, 4087), ("mobilenet_v2", 52, 300), ("squeezenet", 26, 349), ("vgg16", 13, 15347)],
)
def test_the_networks_have_their_known_size(network, convolutions, millions):
    layers = NETWORKS[network]()
    assert len(layers) == convolutions
    assert sum(layer.geometry.flops for layer in layers) / 2e6 == pytest.approx(millions, rel=0.005)


@pytest.mark.parametrize("network", NETWORKS)
def test_the_direct_kernel_computes_every_layer(network):
    for layer in distinct(NETWORKS[network]()):
        rng = np.random.default_rng(layer.channels)
        x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
        shape = (layer.filters, layer.channels // layer.groups, layer.kernel, layer.kernel)
        w = rng.standard_normal(shape, np.float32)
        options = {"stride": layer.stride, "padding": layer.padding, "groups": layer.groups}
        expected = nn.functional.conv2d(torch.from_numpy(x), torch.from_numpy(w), **options).numpy()
        y = CONV2D["direct"](x, w, **options, threads=1)
        assert np.abs(y - expected).max() <= 2e-5 * np.abs(expected).max(), layer


def test_the_flops_of_a_layer():
    assert Layer(64, 56, 64, 3).geometry.flops == 231_211_008
