"""Names that a mistyped one may have meant, and small text files."""

from __future__ import annotations

import pytest

from mlhood.errors import GradingError
from mlhood.files import paths
from mlhood.files.paths import did_you_mean, read_text


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


def test_a_text(tmp_path):
    (tmp_path / "late.toml").write_text("timezone = 'Europe/Zürich'", encoding="utf-8")
    assert read_text(tmp_path / "late.toml") == "timezone = 'Europe/Zürich'"


def test_a_mistyped_name_tells_the_nearest(tmp_path):
    (tmp_path / "late.toml").touch()
    with pytest.raises(GradingError) as caught:
        read_text(tmp_path / "lat.toml")
    assert caught.value.parts["what to do"] == "did you mean late.toml?"


@pytest.mark.parametrize(("content", "reason"), [(b"\xff\xfe", "utf-8"), (b"x" * 101, "larger than")])
def test_what_is_no_small_text(content, reason, tmp_path, monkeypatch):
    monkeypatch.setattr(paths, "MAX_BYTES", 100)
    (tmp_path / "seed").write_bytes(content)
    with pytest.raises(GradingError) as caught:
        read_text(tmp_path / "seed")
    assert reason in caught.value.parts["got"]
