"""The overview names every project, and its texts neither leave the picture nor cover each other."""

from __future__ import annotations

import re

from mlhood.grading.notebooks.readme import overview
from mlhood.grading.projects import PROJECTS
from tests.plotting.texts import check_texts


def test_every_project_is_named():
    texts = [text.get_text() for text in overview().axes[0].texts]
    assert {text[:2] for text in texts if re.match(r"P\d", text)} == set(PROJECTS)


def test_texts_can_be_read():
    check_texts(overview())
