"""P3: what a convolution costs, and who makes it fast."""

from mlhood.grading.projects.p3.tasks import P3

__all__ = ["P3"]
