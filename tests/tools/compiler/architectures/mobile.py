"""Networks that classify images in few operations: depthwise and grouped convolutions, gates, hard activations."""

from __future__ import annotations

import torch
from torch import nn

from tests.tools.compiler.architectures.architecture import Architecture, image
from tests.tools.compiler.architectures.blocks import Add, SqueezeExcitation, classifier, conv


def mobilenet_v1() -> nn.Module:
    """Build MobileNet-v1: depthwise and pointwise convolutions in turn (Howard et al. 2017)."""
    layers: list[nn.Module] = [conv(3, 16, 3, 2)]
    for inputs, outputs, stride in ((16, 32, 1), (32, 32, 2), (32, 64, 1)):
        layers += [conv(inputs, inputs, 3, stride, groups=inputs), conv(inputs, outputs, 1)]
    return nn.Sequential(*layers, classifier(64))


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


def efficientnet() -> nn.Module:
    """Build EfficientNet: inverted residuals with SiLU and gates (Tan and Le, ICML 2019)."""
    blocks = [
        inverted_residual(8, 8, act=nn.SiLU, excite=SqueezeExcitation(24, act=nn.SiLU)),
        inverted_residual(8, 16, kernel=5, stride=2, act=nn.SiLU, excite=SqueezeExcitation(24, act=nn.SiLU)),
    ]
    return nn.Sequential(conv(3, 8, 3, 2, act=nn.SiLU), *blocks, conv(16, 32, 1, act=nn.SiLU), classifier(32))


def mnasnet() -> nn.Module:
    """Build MNASNet: kernels of 3 and 5, expansions of 3 and 6 (Tan et al., CVPR 2019)."""
    separable = (conv(8, 8, 3, groups=8), conv(8, 8, 1, act=None))
    blocks = (inverted_residual(8, 16, stride=2, act=nn.ReLU), inverted_residual(16, 16, kernel=5, expansion=6))
    return nn.Sequential(conv(3, 8, 3, 2), *separable, *blocks, classifier(16))


class _Shuffle(nn.Module):
    """ShuffleNet-v2's unit: half of the channels pass, half are convolved, both are shuffled."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        half = channels // 2
        self.branch = nn.Sequential(
            conv(half, half, 1), conv(half, half, 3, groups=half, act=None), conv(half, half, 1)
        )

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Split, convolve one part, concatenate and shuffle: [N, C, H, W] -> [N, C, H, W]."""
        passed, convolved = x.chunk(2, dim=1)
        x = torch.cat((passed, self.branch(convolved)), dim=1)
        n, c, h, w = x.shape
        return x.view(n, 2, c // 2, h, w).transpose(1, 2).reshape(n, c, h, w)


def shufflenet() -> nn.Module:
    """Build ShuffleNet-v2 (Ma et al., ECCV 2018)."""
    layers = (conv(3, 16, 3, 2), nn.MaxPool2d(3, 2, 1), _Shuffle(16), _Shuffle(16), conv(16, 32, 1))
    return nn.Sequential(*layers, classifier(32))


def regnet() -> nn.Module:
    """Build RegNet-Y: grouped bottlenecks with gates (Radosavovic et al., CVPR 2020)."""
    blocks = []
    for inputs, outputs in ((16, 24), (24, 48)):
        layers = (conv(inputs, outputs, 1), conv(outputs, outputs, 3, 2, groups=outputs // 8))
        block = nn.Sequential(*layers, SqueezeExcitation(outputs), conv(outputs, outputs, 1, act=None))
        blocks.append(Add(block, conv(inputs, outputs, 1, 2, act=None), nn.ReLU()))
    return nn.Sequential(conv(3, 16, 3, 2), *blocks, classifier(48))


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


class _Ghost(nn.Module):
    """Half of the channels by a convolution, the others from these by a cheap depthwise one (Han et al., CVPR 2020)."""

    def __init__(self, inputs: int, outputs: int) -> None:
        super().__init__()
        half = outputs // 2
        self.primary, self.cheap = conv(inputs, half, 1), conv(half, half, 3, groups=half)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map [N, inputs, H, W] to [N, outputs, H, W]."""
        primary = self.primary(x)
        return torch.cat([primary, self.cheap(primary)], dim=1)[:, : 2 * primary.shape[1], :, :]


def ghostnet() -> nn.Module:
    """Build GhostNet."""
    gate = SqueezeExcitation(32, nn.Hardsigmoid)
    return nn.Sequential(conv(3, 16, 3, 2), Add(nn.Sequential(_Ghost(16, 32), gate, _Ghost(32, 16))), classifier(16))


ARCHITECTURES = (
    Architecture("mobilenet_v1", mobilenet_v1, image()),
    Architecture("mobilenet_v2", mobilenet_v2, image()),
    Architecture("mobilenet_v3", mobilenet_v3, image()),
    Architecture("efficientnet", efficientnet, image()),
    Architecture("mnasnet", mnasnet, image()),
    Architecture("shufflenet", shufflenet, image()),
    Architecture("regnet", regnet, image()),
    Architecture("convnext", convnext, image()),
    Architecture("ghostnet", ghostnet, image()),
)
