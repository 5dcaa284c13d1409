"""The course's own grader, unsandboxed, in a course with the synthetic project."""

from __future__ import annotations

from mlhood.grading.batch.course_grader import unsandboxed
from tests.grading import synthetic_course


def make(settings):
    synthetic_course.install()
    return unsandboxed(settings)
