"""Mutation testing of the checks, and whole classes graded by `mlhood grade`: `python -m tests.tools.grading`."""
