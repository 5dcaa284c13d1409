"""Outlines of boxes: a form for each family, so that a copy without colour tells them apart."""

from __future__ import annotations

from matplotlib.path import Path

# By how much the text must stay away from the left and right side, beyond the usual.
INSETS = {
    "rectangle": 0.0,
    "rounded": 1.0,
    "stadium": 8.0,
    "cut": 2.0,
    "funnel": 8.0,
    "hexagon": 10.0,
    "slanted": 9.0,
    "barred": 6.0,
}


def outline(form: str, left: float, top: float, width: float, height: float) -> Path:
    """Return a form's outline that fills a rectangle; y grows downwards."""
    right, bottom = left + width, top + height
    middle, inset = top + height / 2, min(INSETS[form], height * 0.45)
    if form in ("rounded", "stadium"):
        return _round(left, top, width, height, min(7.0, height / 3) if form == "rounded" else min(width, height) / 2)
    corners = {
        "cut": _cut(left, top, right, bottom),
        "funnel": [(left, top), (right, top), (right - inset, bottom), (left + inset, bottom)],
        "hexagon": [
            (left + inset, top),
            (right - inset, top),
            (right, middle),
            (right - inset, bottom),
            (left + inset, bottom),
            (left, middle),
        ],
        "slanted": [(left + inset, top), (right, top), (right - inset, bottom), (left, bottom)],
    }
    return _closed(corners.get(form, [(left, top), (right, top), (right, bottom), (left, bottom)]))


def bars(form: str, left: float, top: float, width: float, height: float) -> list[Path]:
    """Return the lines inside a form: two bars at the sides of quantisation's."""
    if form != "barred":
        return []
    inset = min(4.5, height * 0.3)
    places = (left + inset, left + width - inset)
    return [Path([(x, top), (x, top + height)]) for x in places]


def _cut(left: float, top: float, right: float, bottom: float) -> list[tuple[float, float]]:
    cut = min(7.0, (bottom - top) / 3)
    return [
        (left + cut, top),
        (right - cut, top),
        (right, top + cut),
        (right, bottom - cut),
        (right - cut, bottom),
        (left + cut, bottom),
        (left, bottom - cut),
        (left, top + cut),
    ]


def _closed(corners: list[tuple[float, float]]) -> Path:
    return Path([*corners, corners[0]], closed=True)


def _round(left: float, top: float, width: float, height: float, radius: float) -> Path:
    right, bottom = left + width, top + height
    turns = [  # where the side ends, the corner, where the next side begins
        ((right - radius, top), (right, top), (right, top + radius)),
        ((right, bottom - radius), (right, bottom), (right - radius, bottom)),
        ((left + radius, bottom), (left, bottom), (left, bottom - radius)),
        ((left, top + radius), (left, top), (left + radius, top)),
    ]
    points, codes = [(left + radius, top)], [Path.MOVETO]
    for turn in turns:
        points += turn
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*points, points[0]], [*codes, Path.CLOSEPOLY])
