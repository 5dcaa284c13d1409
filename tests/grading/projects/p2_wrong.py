"""Typical wrong solutions of P2, with the checks that each must fail and the message it must get."""

from __future__ import annotations

from tests.grading.projects import p2_nmp, p2_wrong_graphs, p2_wrong_integers, p2_wrong_programs
from tests.grading.projects.examples import Mistake

WRONG: tuple[Mistake, ...] = (*p2_wrong_graphs.WRONG, *p2_wrong_integers.WRONG, *p2_wrong_programs.WRONG, *p2_nmp.WRONG)
