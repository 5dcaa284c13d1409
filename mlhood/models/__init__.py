"""The networks that the course compiles, and real data for them.

In: nothing, or a folder with MNIST. Out: torch modules (`MLP`, `LeNet`, `LeNetBN`, `ResNet`), trained with `train`, and
NumPy arrays of images and labels (`digits`, moved and noisy ones with `perturbed`, `photographs`). For benchmarks:
`mobilenet_v2`, and transformers with random weights, blocks (`vit_block`, `gpt_block`) and whole ones.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

from mlhood.models.digits import Digits, digits, perturbed
from mlhood.models.photographs import photographs

if TYPE_CHECKING:
    from mlhood.models.networks import MLP, LeNet, LeNetBN, MobileNetV2, mobilenet_v2
    from mlhood.models.resnet import ResNet, resnet18, resnet50
    from mlhood.models.training import accuracy, train
    from mlhood.models.transformers import gpt_block, vit_block

__all__ = [
    "MLP",
    "Digits",
    "LeNet",
    "LeNetBN",
    "MobileNetV2",
    "ResNet",
    "accuracy",
    "digits",
    "gpt_block",
    "mobilenet_v2",
    "perturbed",
    "photographs",
    "resnet18",
    "resnet50",
    "train",
    "vit_block",
]

_MODULES = {
    "networks": ("MLP", "LeNet", "LeNetBN", "MobileNetV2", "mobilenet_v2"),
    "resnet": ("ResNet", "resnet18", "resnet50"),
    "training": ("accuracy", "train"),
    "transformers": ("gpt_block", "vit_block"),
}
_MODULE_OF = {name: module for module, names in _MODULES.items() for name in names}


def __getattr__(name: str) -> Any:
    """Import what needs torch lazily: the data are also used without it."""
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'mlhood.models' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.models.{_MODULE_OF[name]}"), name)
