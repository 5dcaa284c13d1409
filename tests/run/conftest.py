"""The synthetic course, as the tests of the grading have it."""

from tests.grading.conftest import course, empty, solved

__all__ = ["course", "empty", "solved"]
