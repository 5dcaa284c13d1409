"""Layers that several networks of the zoo share."""

from __future__ import annotations

import torch
from torch import nn


def conv(
    inputs: int,
    outputs: int,
    kernel: int = 3,
    stride: int = 1,
    *,
    groups: int = 1,
    dilation: int = 1,
    act: type[nn.Module] | None = nn.ReLU,
) -> nn.Sequential:
    """Return a convolution that keeps the size at stride 1, batch normalisation and an activation."""
    padding = dilation * (kernel // 2)
    layers: list[nn.Module] = [
        nn.Conv2d(inputs, outputs, kernel, stride, padding, dilation, groups, bias=False),
        nn.BatchNorm2d(outputs),
    ]
    return nn.Sequential(*layers, *([] if act is None else [act()]))


def classifier(channels: int, classes: int = 10) -> nn.Sequential:
    """Return the mean over the image and a linear layer: [N, channels, H, W] -> [N, classes]."""
    return nn.Sequential(nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(channels, classes))


class Add(nn.Module):
    """x + f(x), or shortcut(x) + f(x)."""

    def __init__(self, function: nn.Module, shortcut: nn.Module | None = None, after: nn.Module | None = None) -> None:
        super().__init__()
        self.function, self.shortcut, self.after = function, shortcut or nn.Identity(), after or nn.Identity()

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the sum, through the module `after`."""
        return self.after(self.shortcut(x) + self.function(x))


class Parallel(nn.Module):
    """The results of several branches, concatenated along an axis."""

    def __init__(self, *branches: nn.Module, axis: int = 1) -> None:
        super().__init__()
        self.branches, self.axis = nn.ModuleList(branches), axis

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return the branches' results on x as one tensor."""
        return torch.cat([branch(x) for branch in self.branches], self.axis)


class SqueezeExcitation(nn.Module):
    """Channels, each multiplied by a gate that is computed from the means of all (Hu et al., CVPR 2018, section 3)."""

    def __init__(self, channels: int, gate: type[nn.Module] = nn.Sigmoid, act: type[nn.Module] = nn.ReLU) -> None:
        super().__init__()
        hidden = max(channels // 4, 2)
        layers = (nn.Conv2d(channels, hidden, 1), act(), nn.Conv2d(hidden, channels, 1), gate())
        self.gate = nn.Sequential(nn.AdaptiveAvgPool2d(1), *layers)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        """Return x times the gates: [N, C, H, W] -> [N, C, H, W]."""
        return x * self.gate(x)
