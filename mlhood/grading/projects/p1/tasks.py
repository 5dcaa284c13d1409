"""The tasks of P1 and what they are worth."""

from mlhood.grading.task import Project, Task

P1 = Project(
    "P1",
    "LeNet from PyTorch to ONNX to Netron",
    tasks=(Task("P1.1", "The layers of LeNet", checks=()),),
)
