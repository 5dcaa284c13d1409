from __future__ import annotations

import os
import stat

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.seed import make_seed_file, read_seed


def test_a_seed_file_is_made_once_and_for_its_owner(tmp_path):
    file = make_seed_file(tmp_path / "seed.txt")
    seed = read_seed(file)
    assert read_seed(make_seed_file(file)) == seed
    assert 0 <= seed < 2**63
    assert read_seed(make_seed_file(tmp_path / "other.txt")) != seed
    if os.name == "posix":
        assert stat.S_IMODE(file.stat().st_mode) == 0o600


def test_white_space_around_the_text_does_not_count(tmp_path):
    for name, text in (("a", "secret"), ("b", " secret\r\n")):
        (tmp_path / name).write_text(text)
    assert read_seed(tmp_path / "a") == read_seed(tmp_path / "b")


@pytest.mark.parametrize("content", [None, b"", b" \n", b"\xff\xfe", b"x" * (1 << 21)])
def test_a_file_without_a_seed_is_refused(tmp_path, content):
    if content is not None:
        (tmp_path / "seed").write_bytes(content)
    with pytest.raises(GradingError) as caught:
        read_seed(tmp_path / "seed")
    assert caught.value.parts["where"] == str(tmp_path / "seed")
