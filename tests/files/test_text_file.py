from __future__ import annotations

import pytest

from mlhood.errors import GradingError
from mlhood.files import text_file
from mlhood.files.text_file import read_text


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
    monkeypatch.setattr(text_file, "MAX_BYTES", 100)
    (tmp_path / "seed").write_bytes(content)
    with pytest.raises(GradingError) as caught:
        read_text(tmp_path / "seed")
    assert reason in caught.value.parts["got"]
