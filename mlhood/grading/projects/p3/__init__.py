"""P3: what a convolution costs, and what makes it fast."""

from mlhood.grading.checks.task import Question
from mlhood.grading.projects.collect import collect_project

P3 = collect_project(
    __name__,
    "From a naive loop past the libraries",
    questions=(Question("P3.15", "Why does the library win?"), Question("P3.16", "When would you not use im2col?")),
)
