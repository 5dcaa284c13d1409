"""The exception hierarchy that users see.

One class per stage of the course. A message states what went wrong, where, what was expected, what was found, and what
to do about it; parts that do not apply are omitted.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable

_MAX_PART_CHARS = 2000
_ALIKE = 0.1  # a second name is worth telling if it is hardly less like the mistyped one than the first
# Characters that move the cursor, colour the terminal, change the direction of the text or cannot be seen or written.
_UNPRINTABLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb\U000e0000-\U000e007f]"
)


class MlhoodError(Exception):
    """Base class of all errors caused by invalid input, a missing tool or a full disk.

    Args:
        what: One sentence: what went wrong.
        where: The object concerned: a file, node, cell or task.
        expected: What would have been valid.
        got: The actual value.
        todo: What the user can do about it.
    """

    stage = "mlhood"

    def __init__(
        self, what: str, *, where: object = None, expected: object = None, got: object = None, todo: str | None = None
    ) -> None:
        self.what = what
        parts = {"where": where, "expected": expected, "got": got, "what to do": todo}
        self.parts = {label: _sanitize(str(part)) for label, part in parts.items() if part is not None}
        super().__init__(what)

    def __str__(self) -> str:
        lines = [f"{self.stage}: {printable(self.what)}"]
        lines += [f"  {label}: {part}" for label, part in self.parts.items()]
        return "\n".join(lines)

    def one_line(self) -> str:
        """Return the message on one line for a student, without `where`: it may name paths on the grading machine."""
        return "; ".join(
            [printable(self.what), *(f"{label}: {part}" for label, part in self.parts.items() if label != "where")]
        )

    def _render_traceback_(self) -> list[str]:
        """Show the message without a traceback in notebooks (IPython's hook)."""
        return str(self).splitlines()


def nearest(name: object, known: Iterable[str]) -> str | None:
    """Return a hint, such as `did you mean P3.2?`: the known names most like a mistyped one; None if there is none."""
    text = str(name).lower()
    names = {other.lower(): other for other in known}
    found = difflib.get_close_matches(text, names, n=2)
    ratios = [difflib.SequenceMatcher(None, other, text).ratio() for other in found]
    alike = [names[other] for other, ratio in zip(found, ratios, strict=True) if ratio > ratios[0] - _ALIKE]
    return f"did you mean {' or '.join(alike)}?" if alike else None


def printable(text: str) -> str:
    """Return a text with escapes for characters that act on a terminal or cannot be seen; line ends and tabs stay.

    Names in files of others are shown through it.
    """
    return _UNPRINTABLE.sub(lambda match: match[0].encode("unicode_escape").decode(), text)


def _sanitize(text: str) -> str:
    """Escape unprintable characters, and truncate long values."""
    text = printable(text)
    if len(text) <= _MAX_PART_CHARS:
        return text
    return f"{text[:_MAX_PART_CHARS]} ... ({len(text):,} characters)"


class ModelError(MlhoodError):
    """A model or a data set cannot be built, found or read."""

    stage = "models"


class ExchangeError(MlhoodError):
    """A model cannot be exported, read or inspected."""

    stage = "exchange"


class BrowserError(ExchangeError):
    """No browser to render with, or the one installed does not work."""

    stage = "netron"


class CompilerError(MlhoodError):
    """A model cannot be imported, a graph is invalid, or an operation is not supported."""

    stage = "compiler"


class DrawingError(MlhoodError):
    """A graph cannot be drawn, or its drawing cannot be saved in the requested format."""

    stage = "drawing"


class MeasureError(MlhoodError):
    """A measurement is not possible, alternatives disagree, or a stored result is invalid."""

    stage = "measure"


class KernelError(MlhoodError):
    """Invalid operands of a matrix product or a convolution, or a kernel that this machine cannot run."""

    stage = "kernels"


class GPUError(MlhoodError):
    """A kernel for a GPU accesses what does not exist, or this machine cannot run or compile it."""

    stage = "gpu"


class DataflowError(MlhoodError):
    """An invalid loop nest, tiling or systolic array, or a description of one that cannot be parsed."""

    stage = "dataflow"


class NestError(DataflowError):
    """A loop nest cannot be parsed, a schedule step is not legal, or the arguments do not fit the nest."""

    stage = "loop nest"


class SlicingError(DataflowError):
    """A convolution cannot be sliced as requested, or the sizes of the caches are unknown."""

    stage = "slicing"


class CacheError(DataflowError):
    """An invalid cache or an invalid access to one."""

    stage = "cache"


class XlaError(MlhoodError):
    """A function cannot be traced or compiled, or XLA's output about it cannot be parsed."""

    stage = "jaxlab"


class AutodiffError(MlhoodError):
    """A function cannot be traced or differentiated."""

    stage = "jaxlab"


class ClusterError(MlhoodError):
    """Processes cannot be launched or reached, one of them failed, or arrays cannot be sharded as requested."""

    stage = "cluster"


class TraceError(MlhoodError):
    """A function cannot be traced, or a traced program cannot be run or drawn."""

    stage = "jaxlab"


class NotebookError(MlhoodError):
    """A notebook cannot be read, or does not belong to the course."""

    stage = "notebook"


class GradingError(MlhoodError):
    """A submission cannot be run or graded."""

    stage = "grading"


class OutputError(MlhoodError):
    """A result cannot be written to its destination."""

    stage = "output"
