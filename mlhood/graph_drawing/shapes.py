"""Outlines of boxes, one for each kind of node, so that a copy without colour distinguishes them."""

from __future__ import annotations

from matplotlib.path import Path

# Extra distance of the text from the left and right side of the outline.
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


def outline(shape: str, left: float, top: float, width: float, height: float) -> Path:
    """Return the outline of a shape that fills a rectangle; y grows downwards."""
    right, bottom = left + width, top + height
    middle, inset = top + height / 2, min(INSETS[shape], height * 0.45)
    cut = min(7.0, height / 3)
    if shape in ("rounded", "stadium"):
        return _round(left, top, width, height, cut if shape == "rounded" else min(width, height) / 2)
    corners = {
        "cut": [
            (left + cut, top),
            (right - cut, top),
            (right, top + cut),
            (right, bottom - cut),
            (right - cut, bottom),
            (left + cut, bottom),
            (left, bottom - cut),
            (left, top + cut),
        ],
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
    }.get(shape, [(left, top), (right, top), (right, bottom), (left, bottom)])
    return Path([*corners, corners[0]], closed=True)


def bars(shape: str, left: float, top: float, width: float, height: float) -> list[Path]:
    """Return the lines inside a shape: two vertical bars in "barred", none elsewhere."""
    if shape != "barred":
        return []
    inset = min(4.5, height * 0.3)
    return [Path([(x, top), (x, top + height)]) for x in (left + inset, left + width - inset)]


def _round(left: float, top: float, width: float, height: float, radius: float) -> Path:
    right, bottom = left + width, top + height
    corners = [  # end of a side, corner, start of the next side
        ((right - radius, top), (right, top), (right, top + radius)),
        ((right, bottom - radius), (right, bottom), (right - radius, bottom)),
        ((left + radius, bottom), (left, bottom), (left, bottom - radius)),
        ((left, top + radius), (left, top), (left + radius, top)),
    ]
    points, codes = [(left + radius, top)], [Path.MOVETO]
    for corner in corners:
        points += corner
        codes += [Path.LINETO, Path.CURVE3, Path.CURVE3]
    return Path([*points, points[0]], [*codes, Path.CLOSEPOLY])
