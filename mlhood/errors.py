"""The one family of errors that users see.

Each class is a stage of the course. A message says what went wrong, where, what was expected, what came, and what
to do; parts that do not apply are left out.
"""

from __future__ import annotations

import re

_LONGEST_PART = 2000
_CONTROL = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f]")


class MlhoodError(Exception):
    """Base of all errors that bad input, a missing tool or a full disk can cause.

    Args:
        what: One sentence: what went wrong.
        where: The object concerned: a file, node, cell or task.
        expected: What would have been right.
        got: What came instead.
        todo: What the user can do about it.
    """

    stage = "mlhood"

    def __init__(
        self,
        what: str,
        *,
        where: object = None,
        expected: object = None,
        got: object = None,
        todo: str | None = None,
    ) -> None:
        self.what = what
        parts = {"where": where, "expected": expected, "got": got, "what to do": todo}
        self.parts = {label: _shortened(str(part)) for label, part in parts.items() if part is not None}
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"{self.stage}: {self.what}"]
        lines += [f"  {label}: {part}" for label, part in self.parts.items()]
        return "\n".join(lines)

    def in_a_line(self) -> str:
        """In one line, for a student: without where, which names paths of the machine that grades."""
        told = {label: part for label, part in self.parts.items() if label != "where"}
        return "; ".join([self.what, *(f"{label}: {part}" for label, part in told.items())])

    def _render_traceback_(self) -> list[str]:
        """In a notebook, the message without the inside of the library (IPython's hook)."""
        return str(self).splitlines()


def _shortened(text: str) -> str:
    """Return a text that somebody can read: what came may be a list of millions, or move the terminal's cursor."""
    text = _CONTROL.sub(lambda found: f"\\x{ord(found[0]):02x}", text)
    if len(text) <= _LONGEST_PART:
        return text
    return f"{text[:_LONGEST_PART]} ... ({len(text):,} characters)"


class ModelError(MlhoodError):
    """A model or a data set cannot be built, found or read."""

    stage = "models"


class ExchangeError(MlhoodError):
    """A model cannot be exported, read or inspected."""

    stage = "exchange"


class BrowserError(ExchangeError):
    """No browser to draw with, or the one found does not work."""

    stage = "netron"


class CompilerError(MlhoodError):
    """A model cannot be imported, a graph is not valid, or an operator cannot do what is asked of it."""

    stage = "compiler"


class MeasureError(MlhoodError):
    """Something cannot be measured, alternatives disagree, or a stored result is not one."""

    stage = "measure"


class KernelError(MlhoodError):
    """A matrix product or a convolution is asked for what has no meaning, or on a machine that cannot run it."""

    stage = "kernels"


class DataflowError(MlhoodError):
    """A loop nest, a tiling or an array is asked for what has no meaning, or its description cannot be read."""

    stage = "dataflow"


class NotebookError(MlhoodError):
    """A notebook cannot be read, or is not one of the course's."""

    stage = "notebook"


class GradingError(MlhoodError):
    """A submission cannot be run or marked."""

    stage = "grading"


class OutputError(MlhoodError):
    """A result cannot be written where it should go."""

    stage = "output"
