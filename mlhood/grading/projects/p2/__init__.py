"""P2: a compiler from ONNX to integers."""

from mlhood.grading.checks.task import Question
from mlhood.grading.projects.collect import collect_project

P2 = collect_project(
    __name__,
    "A compiler for networks: from ONNX to integers",
    questions=(Question("P2.15", "When may a compiler fuse?"), Question("P2.16", "Who should choose the schema?")),
    reads=("lenet.onnx",),
)
