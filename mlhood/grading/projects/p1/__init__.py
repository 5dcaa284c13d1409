"""P1: LeNet from PyTorch to ONNX to Netron."""

from mlhood.grading.projects.p1.tasks import P1

__all__ = ["P1"]
