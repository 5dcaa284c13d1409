"""ResNet-18 and -50 with torchvision's module, parameter and buffer names.

Source: K. He, X. Zhang, S. Ren, J. Sun, "Deep residual learning for image recognition", CVPR 2016, table 1.
As in torchvision, the stride of a bottleneck is in its 3x3 convolution ("ResNet V1.5").
"""

from __future__ import annotations

import torch
from torch import nn


def _conv(channels: int, filters: int, size: int, stride: int = 1) -> nn.Conv2d:
    # No bias: the batch normalization that follows has one.
    return nn.Conv2d(channels, filters, size, stride=stride, padding=size // 2, bias=False)


class BasicBlock(nn.Module):
    """Two 3x3 convolutions around a shortcut: float32 [N, C, H, W] -> [N, width, H/stride, W/stride]."""

    expansion = 1

    def __init__(self, channels: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 3, stride)
        self.bn1 = nn.BatchNorm2d(width)
        self.relu = nn.ReLU(inplace=True)
        self.conv2 = _conv(width, width, 3)
        self.bn2 = nn.BatchNorm2d(width)
        self.downsample = downsample

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the residual to the shortcut, then relu."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.bn2(self.conv2(y))
        return self.relu(y + shortcut)


class Bottleneck(nn.Module):
    """1x1 down, 3x3, 1x1 up around a shortcut: float32 [N, C, H, W] -> [N, 4*width, H/stride, W/stride]."""

    expansion = 4

    def __init__(self, channels: int, width: int, stride: int, downsample: nn.Module | None) -> None:
        super().__init__()
        self.conv1 = _conv(channels, width, 1)
        self.bn1 = nn.BatchNorm2d(width)
        self.conv2 = _conv(width, width, 3, stride)
        self.bn2 = nn.BatchNorm2d(width)
        self.conv3 = _conv(width, width * self.expansion, 1)
        self.bn3 = nn.BatchNorm2d(width * self.expansion)
        self.relu = nn.ReLU(inplace=True)
        self.downsample = downsample

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Add the residual to the shortcut, then relu."""
        shortcut = x if self.downsample is None else self.downsample(x)
        y = self.relu(self.bn1(self.conv1(x)))
        y = self.relu(self.bn2(self.conv2(y)))
        y = self.bn3(self.conv3(y))
        return self.relu(y + shortcut)


class ResNet(nn.Module):
    """A residual network of four stages.

    Args:
        block: `BasicBlock` or `Bottleneck`.
        depths: Number of blocks in each of the four stages.
        classes: Number of logits.
    """

    def __init__(
        self, block: type[BasicBlock] | type[Bottleneck], depths: tuple[int, int, int, int], classes: int = 1000
    ) -> None:
        super().__init__()
        self._channels = 64
        self.conv1 = _conv(3, 64, 7, stride=2)
        self.bn1 = nn.BatchNorm2d(64)
        self.relu = nn.ReLU(inplace=True)
        self.maxpool = nn.MaxPool2d(kernel_size=3, stride=2, padding=1)
        self.layer1 = self._stage(block, 64, depths[0], stride=1)
        self.layer2 = self._stage(block, 128, depths[1], stride=2)
        self.layer3 = self._stage(block, 256, depths[2], stride=2)
        self.layer4 = self._stage(block, 512, depths[3], stride=2)
        self.avgpool = nn.AdaptiveAvgPool2d((1, 1))
        self.fc = nn.Linear(512 * block.expansion, classes)
        for module in self.modules():
            if isinstance(module, nn.Conv2d):
                nn.init.kaiming_normal_(module.weight, mode="fan_out", nonlinearity="relu")

    def _stage(self, block: type[BasicBlock] | type[Bottleneck], width: int, depth: int, stride: int) -> nn.Sequential:
        filters = width * block.expansion
        downsample = None
        if stride != 1 or self._channels != filters:
            downsample = nn.Sequential(_conv(self._channels, filters, 1, stride), nn.BatchNorm2d(filters))
        blocks = [block(self._channels, width, stride, downsample)]
        self._channels = filters
        blocks += [block(filters, width, 1, None) for _ in range(depth - 1)]
        return nn.Sequential(*blocks)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 [N, 3, H, W] (224 x 224 as published) to float32 logits [N, classes]."""
        x = self.maxpool(self.relu(self.bn1(self.conv1(x))))
        x = self.layer4(self.layer3(self.layer2(self.layer1(x))))
        return self.fc(torch.flatten(self.avgpool(x), 1))


def resnet18(*, classes: int = 1000) -> ResNet:
    """Build ResNet-18 with random weights and `classes` logits: 11,689,512 parameters with 1000."""
    return ResNet(BasicBlock, (2, 2, 2, 2), classes)


def resnet50(*, classes: int = 1000) -> ResNet:
    """Build ResNet-50 with random weights and `classes` logits: 25,557,032 parameters with 1000."""
    return ResNet(Bottleneck, (3, 4, 6, 3), classes)
