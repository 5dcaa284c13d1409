from __future__ import annotations

from tests.grading.conftest import course, solved  # noqa: F401 (fixtures)
