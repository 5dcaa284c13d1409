"""Networks that classify images in few operations: depthwise and grouped convolutions, gates, hard activations."""

from __future__ import annotations

import torch
from torch import nn

from tests.tools.compiler.architectures.architecture import Architecture, image
from tests.tools.compiler.architectures.blocks import Add, SqueezeExcitation, classifier, conv


def inverted_residual(
    inputs: int,
    outputs: int,
    *,
    kernel: int = 3,
    stride: int = 1,
    expansion: int = 3,
    act: type[nn.Module] = nn.ReLU6,
    excite: nn.Module | None = None,
) -> nn.Module:
    """Return a block that expands, convolves each channel, and projects (Sandler et al., CVPR 2018)."""
    wide = expansion * inputs
    layers = [conv(inputs, wide, 1, act=act), conv(wide, wide, kernel, stride, groups=wide, act=act)]
    block = nn.Sequential(*layers, *([] if excite is None else [excite]), conv(wide, outputs, 1, act=None))
    return Add(block) if (inputs, stride) == (outputs, 1) else block


def mobilenet_v2() -> nn.Module:
    """Build MobileNet-v2: inverted residuals with ReLU6."""
    blocks = [inverted_residual(8, 16, stride=2), inverted_residual(16, 16), inverted_residual(16, 24, stride=2)]
    return nn.Sequential(conv(3, 8, 3, 2, act=nn.ReLU6), *blocks, conv(24, 64, 1, act=nn.ReLU6), classifier(64))


def mobilenet_v3() -> nn.Module:
    """Build MobileNet-v3: hard swish, gates by hard sigmoid (Howard et al., ICCV 2019)."""
    first = inverted_residual(8, 16, stride=2, act=nn.ReLU, excite=SqueezeExcitation(24, nn.Hardsigmoid))
    second = inverted_residual(16, 16, kernel=5, act=nn.Hardswish, excite=SqueezeExcitation(48, nn.Hardsigmoid))
    head = (nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(48, 32), nn.Hardswish(), nn.Dropout(), nn.Linear(32, 10))
    last = conv(16, 48, 1, act=nn.Hardswish)
    return nn.Sequential(conv(3, 8, 3, 2, act=nn.Hardswish), first, second, last, *head)


class _ConvNeXtBlock(nn.Module):
    """A depthwise convolution of 7x7, normalisation over channels, and a perceptron, in channels-last order."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.depthwise = nn.Conv2d(channels, channels, 7, padding=3, groups=channels)
        self.norm = nn.LayerNorm(channels, eps=1e-6)
        self.mlp = nn.Sequential(nn.Linear(channels, 4 * channels), nn.GELU(), nn.Linear(4 * channels, channels))
        self.scale = nn.Parameter(torch.rand(channels, 1, 1))

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add what the block computes, times a factor for each channel."""
        y = self.mlp(self.norm(self.depthwise(x).permute(0, 2, 3, 1)))
        return x + self.scale * y.permute(0, 3, 1, 2)


def convnext() -> nn.Module:
    """Build ConvNeXt: patches, blocks, a global mean (Liu et al., CVPR 2022)."""
    stem = nn.Conv2d(3, 16, 4, 4)
    return nn.Sequential(stem, _ConvNeXtBlock(16), nn.Conv2d(16, 32, 2, 2), _ConvNeXtBlock(32), classifier(32))


ARCHITECTURES = (
    Architecture("mobilenet_v2", mobilenet_v2, image()),
    Architecture("mobilenet_v3", mobilenet_v3, image()),
    Architecture("convnext", convnext, image()),
)
