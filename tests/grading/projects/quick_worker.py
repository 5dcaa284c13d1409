"""The worker of the course, which measures less."""

from __future__ import annotations

from mlhood.grading.batch.worker import main
from tests.grading.projects.quick import measure_less

if __name__ == "__main__":
    measure_less(setattr, again=True)
    main()
