"""The multilayer perceptron: the smallest network that the course compiles."""

from __future__ import annotations

import torch
from torch import nn


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
