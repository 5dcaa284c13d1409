"""What is compiled: MLP, LeNet, ResNet, and real data to run them on."""

from mlhood.models.digits import Digits, digits
from mlhood.models.lenet import LeNet, LeNetBN
from mlhood.models.mlp import MLP
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
