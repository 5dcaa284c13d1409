"""The overview names every project, and its texts neither leave the picture nor cover each other."""

from __future__ import annotations

import re
from itertools import combinations

from mlhood.grading.projects import PROJECTS
from mlhood.plotting.overview import overview


def test_every_project_is_named():
    texts = [text.get_text() for text in overview().axes[0].texts]
    assert {text[:2] for text in texts if re.match(r"P\d", text)} == set(PROJECTS)


def test_texts_are_inside_and_apart():
    figure = overview()
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in figure.axes[0].texts if text.get_text()]
    left, bottom, right, top = figure.bbox.extents
    assert all(box.x0 >= left and box.y0 >= bottom and box.x1 <= right and box.y1 <= top for box in boxes)
    assert not [pair for pair in combinations(boxes, 2) if pair[0].overlaps(pair[1])]
