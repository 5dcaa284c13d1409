"""The worker of the course with the synthetic project, in which each notebook has a small sandbox."""

from __future__ import annotations

from mlhood.grading.batch.course_grader import CourseGrader
from mlhood.grading.batch.worker import main
from mlhood.grading.sandbox.kernel import SandboxPool
from tests.attacks.attacked import SMALL
from tests.grading import synthetic_course

if __name__ == "__main__":
    synthetic_course.install()
    main(lambda sandbox, seed, exclusive: CourseGrader(seed, exclusive, SandboxPool(SMALL, imports=()).kernel))
