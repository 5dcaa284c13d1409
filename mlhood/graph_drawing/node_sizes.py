"""How much room a box takes: its text, the arrows that arrive above it, the labels of what leaves it below."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import accumulate

from mlhood.compiler.hir.drawing.families import FAMILIES
from mlhood.graph_drawing.outlines import INSETS
from mlhood.graph_drawing.scene import Box, Port
from mlhood.graph_drawing.text_metrics import Line

LABEL_GAP = 6.0  # between a wire and the label to its right
_SLOT = 16.0
_FEW = 3
_PADDING = 9.0
_DOUBLE = 6.0  # more in width and height for a double outline
_ABOVE = 9.0  # room for an arrow's head


@dataclass(frozen=True)
class Frame:
    """The room of a vertex, in pixels from the middle of its box.

    Args:
        left: How far it reaches to the left.
        right: How far it reaches to the right.
        width: Width of the box itself.
        head: Height above the box for arrows and the words beside them.
        body: Height of the box itself.
        foot: Height below the box for the labels of what leaves it.
        step: How far the arrows that arrive are apart.
        stems: Where the values leave, from the middle.
    """

    left: float
    right: float
    width: float = 0.0
    head: float = 0.0
    body: float = 0.0
    foot: float = 0.0
    step: float = 0.0
    stems: tuple[float, ...] = ()


BEND = Frame(5.0, 5.0)


def frame(box: Box) -> Frame:
    """Return the room that a box takes."""
    stems = _stems(box.ports)
    step = _step(box.slots)
    reach = max((abs(place) for place in (*slots(len(box.slots), 0, step), *stems)), default=0.0)
    text = max((line.width for line in box.lines), default=0.0)
    more = _DOUBLE if box.mark == "changed" else 0.0
    width = max(56.0, text + 2 * (_PADDING + INSETS[FAMILIES[box.family].outline]), 2 * (reach + 12)) + more
    labels = [place + LABEL_GAP + port.width for place, port in zip(stems, box.ports, strict=True)]
    words = reach + step if any(box.slots) else 0.0
    return Frame(
        left=width / 2,
        right=max([width / 2, words, *labels]),
        width=width,
        head=_head(box.slots),
        body=sum(line.height for line in box.lines) + 9.0 + more,
        foot=max((port.height + 5 for port in box.ports), default=0.0),
        step=step,
        stems=stems,
    )


def slots(count: int, main: int, step: float) -> tuple[float, ...]:
    """Return where arrows arrive, from the middle of the box: the main one in the middle, unless there are many."""
    middle = main if count <= _FEW else (count - 1) / 2
    return tuple((i - middle) * step for i in range(count))


def _head(words: list[str]) -> float:
    if not words:
        return 0.0
    return _ABOVE + (word_line("x").height if any(words) else 0.0)


def word_line(word: str) -> Line:
    """Return the words beside an arrow as a line of text."""
    return Line(word, 9.5, faint=True)


def _step(words: list[str]) -> float:
    """Return how far arrows are apart: enough for the words to their right."""
    return max([_SLOT, *(word_line(word).width + LABEL_GAP + 5 for word in words if word)])


def _stems(ports: tuple[Port, ...]) -> tuple[float, ...]:
    """Return where values leave: one in the middle; several side by side, each with its label to its right."""
    if len(ports) <= 1:
        return (0.0,) * len(ports)
    ends = [0.0, *accumulate(port.width + LABEL_GAP + 10 for port in ports)]
    return tuple(start - ends[-1] / 2 for start in ends[:-1])
