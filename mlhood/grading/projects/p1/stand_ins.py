"""Code that replaces an unsolved task of P1, so that later tasks are graded independently of it."""

from __future__ import annotations

from typing import Any

import torch
from torch import nn

from mlhood.grading.projects.p1.reference import SHAPES


class ReferenceLayers(nn.Module):
    """LeNet's layers under the names of the task's table."""

    def __init__(self) -> None:
        super().__init__()
        self.conv1, self.conv2 = _new_layers()[:2]
        self.fc1, self.fc2, self.fc3 = _new_layers()[2:]


def repaired(layers: Any) -> type[nn.Module]:
    """Return a subclass of the student's class with LeNet's layers under the student's own names.

    A forward pass written for these names still works. If the student's class cannot be repaired (it does not run, or
    has fewer than two convolutions and three dense layers), return `ReferenceLayers`.
    """
    if not isinstance(layers, type) or not issubclass(layers, nn.Module) or not _can_repair(layers):
        return ReferenceLayers

    class Repaired(layers):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            super().__init__(*args, **kwargs)
            _repair(self)

    return Repaired


def _can_repair(layers: type[nn.Module]) -> bool:
    try:
        module = layers()
        _repair(module)
    except Exception:  # the student's code may raise anything
        return False
    return sorted(tuple(value.shape) for value in module.parameters()) == sorted(SHAPES.values())


def _repair(module: nn.Module) -> None:
    """Replace the module's layers by LeNet's of the same kind, and surplus layers by the identity."""
    for name, value in list(vars(module).items()):
        if isinstance(value, list) and any(isinstance(item, nn.Module) for item in value):
            setattr(module, name, nn.ModuleList(value))  # a plain list hides its layers from torch
    layers = [
        (owner, name)
        for owner in module.modules()
        for name, child in owner.named_children()
        if list(child.parameters(recurse=False))
    ]
    shapes = {getattr(*layer).weight.shape for layer in layers}
    for new in sorted(_new_layers(), key=lambda layer: layer.weight.shape not in shapes):  # exact matches first
        owner, name = _layer_like(new, layers)
        layers.remove((owner, name))
        setattr(owner, name, new)
    for owner, name in layers:
        setattr(owner, name, nn.Identity())


def _layer_like(new: nn.Module, layers: list[tuple[nn.Module, str]]) -> tuple[nn.Module, str]:
    """Return the first layer (owner, name) of the same kind, preferably one of the same shape."""
    same_kind = [layer for layer in layers if type(getattr(*layer)) is type(new)]
    same_shape = [layer for layer in same_kind if getattr(*layer).weight.shape == new.weight.shape]
    return (same_shape or same_kind)[0]


def _new_layers() -> list[nn.Module]:
    weights = [shape for name, shape in SHAPES.items() if name.endswith("weight")]
    return [nn.Conv2d(s[1], s[0], 5) if len(s) == 4 else nn.Linear(s[1], s[0]) for s in weights]


def mistakes(model: nn.Module, images: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
    """Return the indices of the images that the model misclassifies."""
    with torch.no_grad():
        return torch.nonzero(model(images).argmax(1) != labels).flatten()
