"""The templates: escaped, strict, and part of the package."""

from __future__ import annotations

import re
from pathlib import Path

import pytest
from jinja2 import UndefinedError

from mlhood.grading.reports import render
from mlhood.grading.student.version_files import package_files

ROOT = Path(__file__).parents[3]


def test_values_are_escaped():
    assert render.render("progress.html.j2", rows=[("<b>", "&", "'", '"')]).count("&") == 5


def test_a_missing_value_is_an_error():
    with pytest.raises(UndefinedError):
        render.render("run_report.html.j2", summary="")


@pytest.mark.parametrize("path", sorted(render.TEMPLATES.iterdir()), ids=lambda path: path.name)
def test_no_template_turns_escaping_off(path):
    text = path.read_text(encoding="utf-8")
    assert not re.search(r"\|\s*safe\b", text)
    assert "autoescape" not in text
    assert "<script" not in text


def test_a_student_version_has_the_templates():
    names = {f"mlhood/grading/reports/templates/{path.name}" for path in render.TEMPLATES.iterdir()}
    assert names <= set(package_files(ROOT))
