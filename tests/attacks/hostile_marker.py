"""The course's own marker with the synthetic project, each notebook in a small sandbox: for workers of a batch."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))
sys.path.insert(0, str(Path(__file__).parents[1] / "grading"))

import synthetic_course
from attacked import SMALL

from mlhood.grading.classroom.course import CourseMarker
from mlhood.grading.sandbox.warm import Sandboxes


def make(settings):
    synthetic_course.install()
    return CourseMarker(settings, Sandboxes(SMALL, imports=()))
