"""`mlhood bench grading`, for one round."""

import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.grading import overhead
from mlhood.grading.execution.grade_notebook import RunSettings, grade
from mlhood.grading.sandbox.bubblewrap import problem


def test_the_tiny_notebook_gets_its_points(tmp_path):
    assert grade(overhead.tiny_notebook(), overhead.TINY, tmp_path, RunSettings(0)).earned == 10


@pytest.mark.skipif(bool(problem()), reason="no sandbox on this machine")
def test_a_line_for_each_kernel():
    said = CliRunner().invoke(app, ["bench", "grading", "--rounds", "1"]).output
    assert [line[:14].strip() for line in said.splitlines()] == list(overhead.KERNELS)
