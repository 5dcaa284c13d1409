"""P2: a compiler from ONNX to integers."""

from mlhood.grading.projects.p2.tasks import P2

__all__ = ["P2"]
