"""Networks that classify images, from LeNet to DenseNet, with few channels."""

from __future__ import annotations

import torch
from torch import nn

from mlhood.models.networks import MLP, LeNet
from tests.tools.compiler.architectures.architecture import Architecture, image
from tests.tools.compiler.architectures.blocks import Add, Parallel, SqueezeExcitation, classifier, conv


def alexnet() -> nn.Module:
    """Build AlexNet: large kernels, local response normalisation, dropout, one pool (Krizhevsky et al. 2012)."""
    features = (
        *(nn.Conv2d(3, 16, 11, 4, 2), nn.ReLU(), nn.LocalResponseNorm(5), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(16, 32, 5, padding=2, groups=2), nn.ReLU(), nn.MaxPool2d(3, 2)),
        *(nn.Conv2d(32, 32, 3, padding=1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten()),
    )
    return nn.Sequential(*features, nn.Dropout(), nn.Linear(32, 32), nn.ReLU(), nn.Dropout(), nn.Linear(32, 10))


def vgg() -> nn.Module:
    """Build VGG: pairs of 3x3 convolutions between max pools (Simonyan and Zisserman, ICLR 2015)."""
    layers: list[nn.Module] = []
    for inputs, outputs in ((3, 8), (8, 16), (16, 32)):
        layers += [nn.Conv2d(inputs, outputs, 3, padding=1), nn.ReLU(), nn.Conv2d(outputs, outputs, 3, padding=1)]
        layers += [nn.ReLU(), nn.MaxPool2d(2, 2)]
    return nn.Sequential(*layers, nn.Flatten(), nn.Linear(32 * 16, 64), nn.ReLU(), nn.Dropout(), nn.Linear(64, 10))


def _bottleneck(inputs: int, outputs: int, stride: int, groups: int = 1, excite: bool = False) -> nn.Module:
    width = outputs // 2
    layers = [conv(inputs, width, 1), conv(width, width, 3, stride, groups=groups), conv(width, outputs, 1, act=None)]
    shortcut = None if (inputs, stride) == (outputs, 1) else conv(inputs, outputs, 1, stride, act=None)
    excitation = [SqueezeExcitation(outputs)] if excite else []
    return Add(nn.Sequential(*layers, *excitation), shortcut, nn.ReLU())


def resnet(groups: int = 1, excite: bool = False) -> nn.Module:
    """Build a ResNet of bottlenecks; with groups a ResNeXt, with excitation an SE-ResNet (He et al., CVPR 2016)."""
    stages = [(16, 16, 1), (16, 32, 2), (32, 32, 1), (32, 64, 2)]
    blocks = [_bottleneck(inputs, outputs, stride, groups, excite) for inputs, outputs, stride in stages]
    return nn.Sequential(conv(3, 16, 7, 2), nn.MaxPool2d(3, 2, 1), *blocks, classifier(64))


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


def _fire(inputs: int, squeezed: int, expanded: int) -> nn.Module:
    first = nn.Sequential(nn.Conv2d(inputs, squeezed, 1), nn.ReLU())
    wide = nn.Sequential(nn.Conv2d(squeezed, expanded, 3, padding=1), nn.ReLU())
    return nn.Sequential(first, Parallel(nn.Sequential(nn.Conv2d(squeezed, expanded, 1), nn.ReLU()), wide))


def squeezenet() -> nn.Module:
    """Build SqueezeNet: fire modules, a convolution as classifier (Iandola et al. 2016)."""
    layers = (nn.Conv2d(3, 16, 3, 2), nn.ReLU(), nn.MaxPool2d(3, 2, ceil_mode=True), _fire(16, 4, 16), _fire(32, 4, 16))
    last = (nn.Dropout(), nn.Conv2d(32, 10, 1), nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)), nn.Flatten())
    return nn.Sequential(*layers, nn.MaxPool2d(3, 2, ceil_mode=True), *last)


class _PreActivation(nn.Module):
    """A residual block whose sum is not activated (He et al., ECCV 2016)."""

    def __init__(self, channels: int) -> None:
        super().__init__()
        self.norm1, self.norm2 = nn.BatchNorm2d(channels), nn.BatchNorm2d(channels)
        self.conv1 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)
        self.conv2 = nn.Conv2d(channels, channels, 3, padding=1, bias=False)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x plus what the two normalised and activated convolutions add."""
        y = self.conv1(torch.relu(self.norm1(x)))
        return x + self.conv2(torch.relu(self.norm2(y)))


def preactivation_resnet() -> nn.Module:
    """Build a ResNet with normalisation and activation before each convolution."""
    blocks = (_PreActivation(16), nn.MaxPool2d(2), _PreActivation(16), nn.BatchNorm2d(16), nn.ReLU())
    return nn.Sequential(nn.Conv2d(3, 16, 3, 2, 1), *blocks, classifier(16))


ARCHITECTURES = (
    Architecture("mlp", lambda: MLP(64, 32), image(1, 8)),
    Architecture("lenet", LeNet, image(1, 32)),
    Architecture("alexnet", alexnet, image(3, 64)),
    Architecture("vgg", vgg, image()),
    Architecture("resnet", resnet, image()),
    Architecture("resnext", lambda: resnet(groups=4), image()),
    Architecture("se_resnet", lambda: resnet(excite=True), image()),
    Architecture("preactivation_resnet", preactivation_resnet, image()),
    Architecture("densenet", densenet, image()),
    Architecture("googlenet", googlenet, image()),
    Architecture("inception_v3", inception_v3, image()),
    Architecture("squeezenet", squeezenet, image()),
)
