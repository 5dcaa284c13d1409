from __future__ import annotations

import pytest

from mlhood.grading.variants.seal import seal, unseal


def test_a_seal_is_read_with_its_seed_alone():
    sealed = seal(7, "autumn/B")
    assert unseal(7, sealed) == "autumn/B"
    assert unseal(8, sealed) is None
    assert seal(7, "autumn/B") == sealed


def test_a_seal_does_not_show_the_word():
    assert "autumn" not in seal(7, "autumn")


def test_a_changed_seal_is_not_read():
    sealed = seal(7, "autumn")
    for i in range(len(sealed)):
        other = "A" if sealed[i] != "A" else "B"
        changed = unseal(7, sealed[:i] + other + sealed[i + 1 :])
        assert changed in (None, "autumn")  # the last character has bits that mean nothing
    assert unseal(7, ("B" if sealed[0] == "A" else "A") + sealed[1:]) is None


@pytest.mark.parametrize("text", [None, 3, {"a": 1}, "", "ä", "autumn", "=" * 8, "A" * 40, "A" * 10**6])
def test_anything_else_is_no_seal(text):
    assert unseal(7, text) is None
