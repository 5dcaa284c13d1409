"""Networks that the course compiles: a multilayer perceptron, LeNet-5, also with batch normalisation, and MobileNetV2.

MobileNetV2 has torchvision's module, parameter and buffer names, and random weights. Source: M. Sandler, A. Howard,
M. Zhu, A. Zhmoginov, L.-C. Chen, "MobileNetV2: inverted residuals and linear bottlenecks", CVPR 2018, table 2.

Source of LeNet: Y. LeCun, L. Bottou, Y. Bengio, P. Haffner, "Gradient-based learning applied to document recognition",
Proc. IEEE 86(11), 1998, section II.B. As is usual today: relu instead of tanh, max pooling instead of average
pooling, and a linear output layer.
"""

from __future__ import annotations

import torch
from torch import nn
from torch.nn import functional

WIDTHS = (6, 16, 120, 84)


class MLP(nn.Module):
    """Two layers: 784 -> 200 -> relu -> 10 raw logits; 159,010 parameters.

    Args:
        inputs: Length of the flattened image (784 is 28 x 28).
        hidden: Width of the hidden layer.
        classes: Number of logits.
    """

    def __init__(self, inputs: int = 784, hidden: int = 200, classes: int = 10) -> None:
        super().__init__()
        self.fc1 = nn.Linear(inputs, hidden)
        self.fc2 = nn.Linear(hidden, classes)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 [N, 784], or any [N, ...] with as many elements, to float32 logits [N, 10]."""
        x = torch.relu(self.fc1(torch.flatten(x, 1)))
        return self.fc2(x)


class LeNet(nn.Module):
    """LeNet-5 for images of 1 x 32 x 32: two convolutions, three linear layers; 61,706 parameters.

    Args:
        classes: Number of logits.
        widths: Filters of the two convolutions, and outputs of the first two linear layers.
    """

    def __init__(self, classes: int = 10, widths: tuple[int, int, int, int] = WIDTHS) -> None:
        super().__init__()
        conv1, conv2, fc1, fc2 = widths
        self.conv1 = nn.Conv2d(1, conv1, kernel_size=5)
        self.conv2 = nn.Conv2d(conv1, conv2, kernel_size=5)
        self.fc1 = nn.Linear(conv2 * 5 * 5, fc1)
        self.fc2 = nn.Linear(fc1, fc2)
        self.fc3 = nn.Linear(fc2, classes)

    @property
    def widths(self) -> tuple[int, int, int, int]:
        """Filters of the two convolutions, and outputs of the first two linear layers."""
        return self.conv1.out_channels, self.conv2.out_channels, self.fc1.out_features, self.fc2.out_features

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 [N, 1, 32, 32] to float32 logits [N, 10]."""
        x = functional.max_pool2d(torch.relu(self.conv1(x)), 2)
        x = functional.max_pool2d(torch.relu(self.conv2(x)), 2)
        return self._classify(x)

    def _classify(self, x: torch.Tensor) -> torch.Tensor:
        x = torch.flatten(x, 1)
        x = torch.relu(self.fc1(x))
        x = torch.relu(self.fc2(x))
        return self.fc3(x)


class LeNetBN(LeNet):
    """LeNet with batch normalisation after each convolution; 61,750 parameters.

    The compiler folds the normalisation into the convolution, so the two must agree in evaluation mode.

    Args:
        classes: Number of logits.
        widths: As of LeNet.
    """

    def __init__(self, classes: int = 10, widths: tuple[int, int, int, int] = WIDTHS) -> None:
        super().__init__(classes, widths)
        self.bn1 = nn.BatchNorm2d(widths[0])
        self.bn2 = nn.BatchNorm2d(widths[1])

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Map float32 [N, 1, 32, 32] to float32 logits [N, 10]."""
        x = functional.max_pool2d(torch.relu(self.bn1(self.conv1(x))), 2)
        x = functional.max_pool2d(torch.relu(self.bn2(self.conv2(x))), 2)
        return self._classify(x)


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
