"""Networks that classify images, from LeNet to DenseNet, with few channels."""

from __future__ import annotations

import torch
from torch import nn

from mlhood.models.networks import MLP, LeNet
from tests.tools.compiler.architectures.architecture import Architecture, image
from tests.tools.compiler.architectures.blocks import Parallel, classifier, conv


class _Dense(nn.Module):
    """A layer of a dense block: its channels are appended to its input's."""

    def __init__(self, channels: int, growth: int) -> None:
        super().__init__()
        layers = (nn.Conv2d(channels, 4 * growth, 1, bias=False), nn.BatchNorm2d(4 * growth), nn.ReLU())
        last = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        self.layers = nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), *layers, last)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Append the new channels."""
        return torch.cat([x, self.layers(x)], 1)


def densenet() -> nn.Module:
    """Build DenseNet: each layer reads all before it (Huang et al., CVPR 2017)."""
    transition = (nn.BatchNorm2d(32), nn.ReLU(), nn.Conv2d(32, 16, 1, bias=False), nn.AvgPool2d(2, 2))
    blocks = (*(_Dense(16 + 8 * i, 8) for i in range(2)), *transition, *(_Dense(16 + 8 * i, 8) for i in range(2)))
    return nn.Sequential(conv(3, 16, 3, 2), *blocks, nn.BatchNorm2d(32), nn.ReLU(), classifier(32))


def _inception(inputs: int, pool: nn.Module) -> nn.Module:
    third = nn.Sequential(conv(inputs, 4, 1), conv(4, 8, 3), conv(8, 8, 3))
    return Parallel(
        conv(inputs, 8, 1),
        nn.Sequential(conv(inputs, 8, 1), conv(8, 8, 3)),
        third,
        nn.Sequential(pool, conv(inputs, 8, 1)),
    )


def googlenet() -> nn.Module:
    """Build GoogLeNet: branches of several kernel sizes, max pools with ceil mode (Szegedy et al., CVPR 2015)."""
    stem = (conv(3, 16, 7, 2), nn.MaxPool2d(3, 2, ceil_mode=True), nn.LocalResponseNorm(5))
    blocks = (_inception(16, nn.MaxPool2d(3, 1, 1)), nn.MaxPool2d(3, 2, ceil_mode=True))
    return nn.Sequential(*stem, *blocks, _inception(32, nn.MaxPool2d(3, 1, 1)), classifier(32))


def inception_v3() -> nn.Module:
    """Build Inception-v3's blocks: 1x7 and 7x1 kernels, average pools without padding in their counts (CVPR 2016)."""
    factorized = nn.Sequential(
        nn.Conv2d(32, 8, (1, 7), padding=(0, 3)), nn.Conv2d(8, 8, (7, 1), padding=(3, 0)), nn.ReLU()
    )
    pool = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), conv(32, 8, 1))
    reduction = Parallel(conv(16, 16, 3, 2), nn.MaxPool2d(3, 2, 1))
    return nn.Sequential(conv(3, 16, 3, 2), reduction, Parallel(factorized, pool, conv(32, 8, 1)), classifier(24))


ARCHITECTURES = (
    Architecture("mlp", lambda: MLP(64, 32), image(1, 8)),
    Architecture("lenet", LeNet, image(1, 32)),
    Architecture("densenet", densenet, image()),
    Architecture("googlenet", googlenet, image()),
    Architecture("inception_v3", inception_v3, image()),
)
