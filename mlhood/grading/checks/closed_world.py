"""The closed world: code that can be marked automatically is code that can be read before it runs.

A check believes what a student's process returns only because nothing there can change Python, the libraries or our
server under it. So all cells of a notebook are read, and a construct that runs code which cannot be read, or reaches
into the interpreter, a library or the grading, is a `Finding`: the tasks that are judged after its cell are held for
the instructor. Nothing is guessed about such code, and nothing of it is executed here.
"""

from __future__ import annotations

import re

from mlhood.grading.checks.cell_source import TOO_DEEP, CellCode, Piece, read_cell
from mlhood.grading.checks.closed_world_visitor import Finding, read_piece
from mlhood.grading.checks.scopes import MAX_LINE_CHARACTERS, Origins

MISSING_MODULE = re.compile(r"ModuleNotFoundError: No module named '(\w+)")


class ClosedWorld:
    """The cells of a notebook that were read so far.

    Attributes:
        findings: In the order of the cells, at most a few for each.
    """

    def __init__(self) -> None:
        self.findings: list[Finding] = []
        self._origins = Origins()
        self._passes_modules = False
        self._stores: list[Finding] = []

    def add_cell(self, code: CellCode, *, trusted: bool = False, error: str = "") -> None:
        """Read a cell.

        Args:
            code: Its code.
            trusted: Whether the course wrote it, so that only the names which it imports matter.
            error: With what it stopped: a module that does not exist does no harm.
        """
        missing = MISSING_MODULE.search(error)
        findings = self._read(code, trusted)
        if not trusted:
            self.findings += [found for found in findings if not missing or found.module != missing[1]]

    def _read(self, code: CellCode, trusted: bool) -> list[Finding]:
        findings: list[Finding] = []
        try:
            for piece in code.pieces:
                findings += self._findings(piece, trusted)
        except (RecursionError, MemoryError):
            findings.append(Finding("", TOO_DEEP))
        if code.unreadable:
            findings.append(Finding(code.unreadable.line[:MAX_LINE_CHARACTERS], str(code.unreadable)))
        return findings

    def _findings(self, piece: Piece, trusted: bool) -> list[Finding]:
        read = read_piece(piece, self._origins)
        findings = read.findings + [
            found for source in read.sources for found in self._read(read_cell(source), trusted)
        ]
        if trusted:
            return []
        self._passes_modules |= read.passes_modules
        self._stores += read.stores
        if not self._passes_modules or not self._stores:  # either alone is common and harmless
            return findings
        suspects, self._stores = self._stores, []
        return findings + suspects[:1]


def finding_in_program(source: str) -> Finding | None:
    """Return the first finding in a program of its own."""
    world = ClosedWorld()
    world.add_cell(read_cell(source))
    return next(iter(world.findings), None)
