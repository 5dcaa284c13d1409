"""The networks' layers: that they are the networks', and that the direct kernel computes them."""

import numpy as np
import pytest
import torch
from torch import nn

from mlhood.kernels import CONV2D
from mlhood.kernels.layers import Layer, resnet50
from mlhood.models import resnet50 as model


def test_the_layers_are_the_models():
    found = []

    def note(module: nn.Module, inputs: tuple[torch.Tensor, ...], _: object) -> None:
        channels, size = inputs[0].shape[1:3]
        found.append(Layer(channels, size, module.out_channels, module.kernel_size[0], module.stride[0]))

    network = model().eval()
    for module in network.modules():
        if isinstance(module, nn.Conv2d):
            module.register_forward_hook(note)
    with torch.inference_mode():
        network(torch.zeros(1, 3, 224, 224))
    assert set(resnet50()) == set(found)
    assert len(resnet50()) == len(set(found)) == 23


@pytest.mark.parametrize("layer", resnet50(), ids=lambda layer: layer.name)
def test_every_layer_of_resnet_50(layer):
    rng = np.random.default_rng(layer.channels)
    x = rng.standard_normal((1, layer.channels, layer.size, layer.size), np.float32)
    w = rng.standard_normal((layer.filters, layer.channels, layer.kernel, layer.kernel), np.float32)
    expected = nn.functional.conv2d(
        torch.from_numpy(x), torch.from_numpy(w), stride=layer.stride, padding=layer.padding
    ).numpy()
    for rung in ("direct", "im2col_gemm", "im2col_blas"):
        y = CONV2D[rung](x, w, None, layer.stride, layer.padding, threads=1)
        assert np.abs(y - expected).max() <= 2e-5 * np.abs(expected).max(), rung


def test_the_flops_of_a_layer():
    assert Layer(64, 56, 64, 3).geometry.flops == 231_211_008
