"""MobileNetV2 with torchvision's module, parameter and buffer names, and random weights.

Source: M. Sandler, A. Howard, M. Zhu, A. Zhmoginov, L.-C. Chen, "MobileNetV2: inverted residuals and linear
bottlenecks", CVPR 2018, table 2.
"""

from __future__ import annotations

import torch
from torch import nn

# expansion t, output channels c, repeats n, stride s of the first
_TABLE = ((1, 16, 1, 1), (6, 24, 2, 2), (6, 32, 3, 2), (6, 64, 4, 2), (6, 96, 3, 1), (6, 160, 3, 2), (6, 320, 1, 1))
_DIVISOR = 8


def _conv(channels: int, filters: int, size: int, stride: int = 1, groups: int = 1) -> list[nn.Module]:
    """Return convolution, batch normalization and relu6."""
    conv = nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, groups=groups, bias=False)
    return [conv, nn.BatchNorm2d(filters), nn.ReLU6(inplace=True)]


class InvertedResidual(nn.Module):
    """1x1 up, 3x3 depthwise, 1x1 down without activation: float32 [N, C, H, W] -> [N, filters, H/stride, W/stride].

    The input is added to the result if both have the same shape.
    """

    def __init__(self, channels: int, filters: int, stride: int, expansion: int) -> None:
        super().__init__()
        hidden = channels * expansion
        self.has_shortcut = stride == 1 and channels == filters
        parts: list[nn.Module] = [nn.Sequential(*_conv(channels, hidden, 1))] if expansion != 1 else []
        parts.append(nn.Sequential(*_conv(hidden, hidden, 3, stride, groups=hidden)))
        conv, norm, _ = _conv(hidden, filters, 1)
        self.conv = nn.Sequential(*parts, conv, norm)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the result of the block."""
        return x + self.conv(x) if self.has_shortcut else self.conv(x)


class MobileNetV2(nn.Module):
    """A network of inverted residuals: 3,504,872 parameters and 300 million multiply-accumulates for 224 x 224.

    Args:
        classes: Number of logits.
        width: Multiplier of the channels, which are rounded to multiples of 8.
    """

    def __init__(self, classes: int = 1000, width: float = 1.0) -> None:
        super().__init__()
        channels = _scaled(32, width)
        parts: list[nn.Module] = [nn.Sequential(*_conv(3, channels, 3, stride=2))]
        for expansion, unscaled, repeats, stride in _TABLE:
            filters = _scaled(unscaled, width)
            for i in range(repeats):
                parts.append(InvertedResidual(channels, filters, stride if i == 0 else 1, expansion))
                channels = filters
        last = _scaled(1280, max(width, 1.0))
        self.features = nn.Sequential(*parts, nn.Sequential(*_conv(channels, last, 1)))
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.classifier = nn.Sequential(nn.Dropout(0.2), nn.Linear(last, classes))
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                # fan_in, 9 for a depthwise convolution: with fan_out, values would vanish from layer to layer
                nn.init.kaiming_normal_(module.weight, mode="fan_in", nonlinearity="relu")

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 [N, 3, H, W] (224 x 224 as published) to float32 logits [N, classes]."""
        return self.classifier(torch.flatten(self.avgpool(self.features(x)), 1))


def mobilenet_v2(seed: int = 0, *, classes: int = 1000, width: float = 1.0) -> MobileNetV2:
    """Build MobileNetV2 with random weights.

    Args:
        seed: Of the weights; the state of torch's generator is left as it was.
        classes: Number of logits.
        width: Multiplier of the channels.
    """
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return MobileNetV2(classes, width)


def _scaled(channels: int, width: float) -> int:
    """Return the scaled channels, rounded to a multiple of 8, but not by more than a tenth down."""
    scaled = channels * width
    rounded = max(_DIVISOR, int(scaled + _DIVISOR / 2) // _DIVISOR * _DIVISOR)
    return rounded if rounded >= 0.9 * scaled else rounded + _DIVISOR
