from __future__ import annotations

import pytest

from mlhood.grading.variants.signature import sign, verify


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
