"""Families of networks as defined by their papers and torchvision, of any width, with random weights.

SqueezeNet 1.1 (arXiv 1602.07360), VGG (arXiv 1409.1556), DenseNet (arXiv 1608.06993),
Inception v3's blocks (arXiv 1512.00567), MobileNetV3's block (arXiv 1905.02244), U-Net (arXiv 1505.04597).
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

VGG = {
    11: (64, "M", 128, "M", 256, 256, "M", 512, 512, "M", 512, 512, "M"),
    16: (64, 64, "M", 128, 128, "M", 256, 256, 256, "M", 512, 512, 512, "M", 512, 512, 512, "M"),
}


def conv(channels, filters, size=3, stride=1, groups=1, activation=None):
    pads = tuple(n // 2 for n in size) if isinstance(size, tuple) else size // 2
    parts = [nn.Conv2d(channels, filters, size, stride, pads, groups=groups, bias=False), nn.BatchNorm2d(filters)]
    return nn.Sequential(*parts, *([activation] if activation else []))


class Fire(nn.Module):
    def __init__(self, channels, squeeze, expand):
        super().__init__()
        self.squeeze = nn.Conv2d(channels, squeeze, 1)
        self.expand1 = nn.Conv2d(squeeze, expand, 1)
        self.expand3 = nn.Conv2d(squeeze, expand, 3, padding=1)

    def forward(self, x):
        x = functional.relu(self.squeeze(x))
        return torch.cat([functional.relu(self.expand1(x)), functional.relu(self.expand3(x))], 1)


class SqueezeNet(nn.Module):
    def __init__(self, width=1.0, classes=1000):
        super().__init__()

        def n(channels):
            return max(2, int(channels * width))

        def pool():
            return nn.MaxPool2d(3, 2, ceil_mode=True)

        def fire(channels, squeeze, expand):
            return Fire(2 * n(channels // 2) if channels != 64 else n(64), n(squeeze), n(expand))

        self.features = nn.Sequential(
            *(nn.Conv2d(3, n(64), 3, 2), nn.ReLU(), pool()),
            *(fire(64, 16, 64), fire(128, 16, 64), pool()),
            *(fire(128, 32, 128), fire(256, 32, 128), pool()),
            *(fire(256, 48, 192), fire(384, 48, 192), fire(384, 64, 256), fire(512, 64, 256)),
        )
        head = nn.Conv2d(2 * n(256), classes, 1)
        self.classifier = nn.Sequential(nn.Dropout(0.5), head, nn.ReLU(), nn.AdaptiveAvgPool2d((1, 1)))

    def forward(self, x):
        return torch.flatten(self.classifier(self.features(x)), 1)


class Vgg(nn.Module):
    def __init__(self, depth=11, norm=False, width=1.0, classes=1000):
        super().__init__()
        parts, channels = [], 3
        for entry in VGG[depth]:
            if entry == "M":
                parts.append(nn.MaxPool2d(2, 2))
                continue
            filters = max(4, int(entry * width))
            parts += [nn.Conv2d(channels, filters, 3, padding=1), *([nn.BatchNorm2d(filters)] * norm), nn.ReLU()]
            channels = filters
        self.features = nn.Sequential(*parts)
        self.pool = nn.AdaptiveAvgPool2d((7, 7))
        hidden = max(8, int(4096 * width))
        self.classifier = nn.Sequential(
            *(nn.Linear(channels * 49, hidden), nn.ReLU(), nn.Dropout()),
            *(nn.Linear(hidden, hidden), nn.ReLU(), nn.Dropout()),
            nn.Linear(hidden, classes),
        )

    def forward(self, x):
        return self.classifier(torch.flatten(self.pool(self.features(x)), 1))


class DenseNet(nn.Module):
    """Two dense blocks with a transition between."""

    def __init__(self, growth=4, layers=3, classes=10):
        super().__init__()
        self.stem = nn.Sequential(conv(3, 8, 7, 2, activation=nn.ReLU()), nn.MaxPool2d(3, 2, 1))
        self.first = nn.ModuleList(self._layer(8 + i * growth, growth) for i in range(layers))
        channels = 8 + layers * growth
        self.transition = nn.Sequential(
            nn.BatchNorm2d(channels), nn.ReLU(), nn.Conv2d(channels, channels // 2, 1, bias=False), nn.AvgPool2d(2, 2)
        )
        self.second = nn.ModuleList(self._layer(channels // 2 + i * growth, growth) for i in range(layers))
        last = channels // 2 + layers * growth
        self.norm, self.classifier = nn.BatchNorm2d(last), nn.Linear(last, classes)

    @staticmethod
    def _layer(channels, growth):
        narrow = nn.Conv2d(channels, 4 * growth, 1, bias=False)
        wide = nn.Conv2d(4 * growth, growth, 3, padding=1, bias=False)
        return nn.Sequential(nn.BatchNorm2d(channels), nn.ReLU(), narrow, nn.BatchNorm2d(4 * growth), nn.ReLU(), wide)

    @staticmethod
    def _block(layers, x):
        features = [x]
        for layer in layers:
            features.append(layer(torch.cat(features, 1)))
        return torch.cat(features, 1)

    def forward(self, x):
        x = self.transition(self._block(self.first, self.stem(x)))
        x = functional.relu(self.norm(self._block(self.second, x)))
        return self.classifier(functional.adaptive_avg_pool2d(x, 1).flatten(1))


class Inception(nn.Module):
    """The three kinds of blocks of Inception v3, and its head."""

    def __init__(self, classes=10):
        super().__init__()

        def unit(*sizes):
            return conv(*sizes, activation=nn.ReLU())

        self.stem = unit(3, 8, 3, 2)
        self.a1, self.a5 = unit(8, 4, 1), nn.Sequential(unit(8, 4, 1), unit(4, 4, 5))
        self.apool = nn.Sequential(nn.AvgPool2d(3, 1, 1, count_include_pad=False), unit(8, 4, 1))
        self.reduce = nn.Conv2d(12, 8, 3, 2, bias=False)
        self.c1 = unit(20, 4, 1)
        self.c7 = nn.Sequential(unit(20, 4, 1), unit(4, 4, (1, 7)), unit(4, 4, (7, 1)))
        self.cpool = nn.Sequential(nn.AvgPool2d(3, 1, 1), unit(20, 4, 1))
        self.classifier = nn.Linear(12, classes)

    def forward(self, x):
        x = self.stem(x)
        x = torch.cat([self.a1(x), self.a5(x), self.apool(x)], 1)
        x = torch.cat([self.reduce(x), functional.max_pool2d(x, 3, 2)], 1)
        x = torch.cat([self.c1(x), self.c7(x), self.cpool(x)], 1)
        return self.classifier(torch.mean(x, dim=(2, 3)))


class SqueezeExcite(nn.Module):
    """MobileNetV3's block: hard swish, and squeeze-and-excitation of the channels."""

    def __init__(self, classes=10):
        super().__init__()
        self.stem = conv(3, 8, 3, 2, activation=nn.Hardswish())
        self.narrow, self.wide = nn.Conv2d(8, 4, 1), nn.Conv2d(4, 8, 1)
        self.classifier = nn.Sequential(nn.Linear(8, 16), nn.Hardswish(), nn.Linear(16, classes), nn.LogSoftmax(1))

    def forward(self, x):
        x = self.stem(x)
        weight = functional.relu(self.narrow(functional.adaptive_avg_pool2d(x, 1)))
        x = x * functional.hardsigmoid(self.wide(weight))
        return self.classifier(x.mean((2, 3)))


class UNet(nn.Module):
    """One level of downsampling, and upsampling by a transposed convolution and by interpolation."""

    def __init__(self, mode="bilinear", align_corners=False):
        super().__init__()
        self.first, self.second = conv(3, 4, activation=nn.ReLU()), conv(4, 8, activation=nn.LeakyReLU(0.1))
        self.up = nn.ConvTranspose2d(8, 4, 2, 2)
        self.last = nn.Conv2d(8, 2, 1)
        self.interpolation = {"mode": mode} if mode == "nearest" else {"mode": mode, "align_corners": align_corners}

    def forward(self, x):
        skip = self.first(x)
        x = self.up(self.second(functional.max_pool2d(skip, 2)))
        x = self.last(torch.cat([skip, x], 1))
        return torch.sigmoid(functional.interpolate(x, scale_factor=2, **self.interpolation))
