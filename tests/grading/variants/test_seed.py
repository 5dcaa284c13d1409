from __future__ import annotations

import os
import stat

import pytest

from mlhood.errors import GradingError
from mlhood.grading.variants.seed import make_seed_file, read_seed, sign, verify


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


def test_a_signature_is_read_with_its_seed_alone():
    signed = sign(7, "autumn/B")
    assert verify(7, signed) == "autumn/B"
    assert verify(8, signed) is None
    assert sign(7, "autumn/B") == signed


def test_a_signature_does_not_show_the_word():
    assert "autumn" not in sign(7, "autumn")


def test_a_changed_signature_is_not_read():
    signed = sign(7, "autumn")
    for i in range(len(signed)):
        other = "A" if signed[i] != "A" else "B"
        changed = verify(7, signed[:i] + other + signed[i + 1 :])
        assert changed in (None, "autumn")  # the last character has bits that mean nothing
    assert verify(7, ("B" if signed[0] == "A" else "A") + signed[1:]) is None


@pytest.mark.parametrize("text", [None, 3, {"a": 1}, "", "ä", "autumn", "=" * 8, "A" * 40, "A" * 10**6])
def test_anything_else_is_no_signature(text):
    assert verify(7, text) is None
