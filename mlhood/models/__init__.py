"""The networks that the course compiles, and real data for them.

In: nothing, or a folder with MNIST or a file of weights. Out: torch modules (`MLP`, `LeNet`, `LeNetBN`, `ResNet`),
trained with `train`, and NumPy arrays of images and labels (`digits`, `photographs`).
"""

from mlhood.models.digits import Digits, digits
from mlhood.models.networks import MLP, LeNet, LeNetBN
from mlhood.models.photographs import photographs
from mlhood.models.resnet import ResNet, resnet18, resnet34, resnet50
from mlhood.models.training import accuracy, train

__all__ = [
    "MLP",
    "Digits",
    "LeNet",
    "LeNetBN",
    "ResNet",
    "accuracy",
    "digits",
    "photographs",
    "resnet18",
    "resnet34",
    "resnet50",
    "train",
]
