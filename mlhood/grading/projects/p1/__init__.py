"""P1: LeNet from PyTorch to ONNX to Netron."""

from mlhood.grading.checks.task import Question
from mlhood.grading.projects.collect import collect_project

P1 = collect_project(
    __name__,
    "LeNet from PyTorch to ONNX to Netron",
    questions=(Question("P1.11", "Why an exchange format?"), Question("P1.12", "What the numbers say")),
)
