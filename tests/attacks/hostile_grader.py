"""The grader of the course with the synthetic project, each notebook in a small sandbox: for workers of a batch."""

from __future__ import annotations

from mlhood.grading.batch.course_grader import CourseGrader
from mlhood.grading.sandbox.pool import SandboxPool
from tests.attacks.attacked import SMALL
from tests.grading import synthetic_course


def make(settings):
    synthetic_course.install()
    return CourseGrader(settings, SandboxPool(SMALL, imports=()))
