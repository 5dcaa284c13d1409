"""The worker of the course, in which there is the synthetic project."""

from __future__ import annotations

from mlhood.grading.batch.worker import main
from tests.grading import synthetic_course

if __name__ == "__main__":
    synthetic_course.install()
    main()
