"""Typical wrong solutions of P2, each with what it must cost and what must be said."""

from __future__ import annotations

from tests.grading.projects import p2_wrong_graphs, p2_wrong_integers
from tests.grading.projects.gallery import Wrong

WRONG: tuple[Wrong, ...] = (*p2_wrong_graphs.WRONG, *p2_wrong_integers.WRONG)
