"""The course's own marker, in a course that has the synthetic project, too."""

from __future__ import annotations

from mlhood.grading.batch.course_grader import CourseMarker
from tests.grading import synthetic_course


def make(settings):
    synthetic_course.install()
    return CourseMarker(settings, None)
