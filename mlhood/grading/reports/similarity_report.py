"""The part of the class report about who has written the same, with the two passages side by side."""

from __future__ import annotations

from collections.abc import Sequence

from mlhood.grading.reports.code import code_html
from mlhood.grading.reports.outputs import NOT_SHOWN, Room
from mlhood.grading.reports.page import head
from mlhood.grading.reports.sanitize import escaped
from mlhood.grading.similarity.class_similarity import Likeness
from mlhood.grading.similarity.compare import Pair, Passage

MOST_PAIRS = 50
MOST_SHOWN = 15
MOST_UNREAD = 20
MAX_NAME = 100
HINT = (
    "A hint to look, not a proof: read both before you speak to anybody. Names, numbers, comments and the order of "
    "statements are left out of the comparison; lines in common are bold and have a bar."
)


def alike_html(found: Likeness, room: Room) -> str:
    """Pairs of students, copies of the package's source, and what could not be compared."""
    nothing = "No two submissions are suspiciously alike, and none holds a function of the package."
    parts = ["<h3>Alike</h3>", f'<p class="soft">{HINT}</p>' if found.pairs or found.copies else f"<p>{nothing}</p>"]
    parts += [_pairs("Pairs of students", ("One", "Other"), found.pairs, room)] if found.pairs else []
    parts += [_pairs("Copies of the package's source", ("Who", "Of"), found.copies, room)] if found.copies else []
    return "\n".join([*parts, _unread(found.unread)])


def _pairs(caption: str, who: tuple[str, str], pairs: Sequence[Pair], room: Room) -> str:
    rows = "".join(
        f"<tr><td>{_name(pair.names[0])}</td><td>{_name(pair.names[1])}</td>"
        f'<td class="points">{pair.share:.0%}</td><td class="points">{pair.shared}</td></tr>'
        for pair in pairs[:MOST_PAIRS]
    )
    more = NOT_SHOWN.format(f"{len(pairs) - MOST_PAIRS:,} more are not listed.") if len(pairs) > MOST_PAIRS else ""
    numbers = ("Share in common", "Fingerprints in common")
    titles = head(*who, *numbers, numbers=numbers)
    shown = "".join(room.take(_evidence(pair)) for pair in pairs[:MOST_SHOWN] if room.left)
    return f"<table><caption>{caption}</caption>{titles}<tbody>{rows}</tbody></table>{more}{shown}"


def _evidence(pair: Pair) -> str:
    title = f"<h4>{_name(pair.names[0])} and {_name(pair.names[1])}: {pair.share:.0%}</h4>"
    return title + "".join(_passage(pair, passage) for passage in pair.passages)


def _passage(pair: Pair, passage: Passage) -> str:
    sides = (
        f'<div><p class="label">{_name(name)}, {_name(place)}</p>{code_html(source, lines)}</div>'
        for name, place, source, lines in zip(pair.names, passage.places, passage.sources, passage.lines, strict=True)
    )
    return f'<div class="pair">{"".join(sides)}</div>'


def _unread(unread: Sequence[tuple[str, str]]) -> str:
    if not unread:
        return ""
    names = "; ".join(f"{_name(name)}, {_name(place)}" for name, place in unread[:MOST_UNREAD])
    more = f"; and {len(unread) - MOST_UNREAD:,} more" if len(unread) > MOST_UNREAD else ""
    return f"<p>Not compared, since it is no Python that can be read: {names}{more}</p>"


def _name(text: str) -> str:
    return escaped(text, MAX_NAME)
