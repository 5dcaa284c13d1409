"""Names of files: portable ones, and those that a mistyped name may have meant."""

from __future__ import annotations

import pytest

from mlhood.files.paths import did_you_mean


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("P3.ipny", "did you mean P3.ipynb?"),
        ("p3.ipynb", "did you mean P3.ipynb?"),
        ("lenet.onx", "did you mean Lenet.onnx?"),
        ("report.pdf", None),
        ("x.ipynb", None),
        ("notes.txt", None),
    ],
)
def test_the_nearest_names_are_those_of_the_same_folder(name, expected, tmp_path):
    for other in ("P3.ipynb", "Lenet.onnx", "notes.txt"):
        (tmp_path / other).touch()
    assert did_you_mean(tmp_path / name) == expected
    assert did_you_mean(tmp_path / "missing" / name) is None
