"""The small networks that the course compiles: a multilayer perceptron, LeNet-5, and LeNet with batch normalisation.

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
