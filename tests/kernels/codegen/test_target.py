"""The targets that a machine offers, and those that it does not."""

import sys

import llvmlite.binding as llvm
import pytest

from mlhood.kernels.codegen import target

SAPPHIRE_RAPIDS = dict.fromkeys(
    ("avx2", "fma", "avx512f", "avx512vl", "avx512vnni", "amx-tile", "amx-int8"),
    True,
)


@pytest.fixture
def names(monkeypatch):
    """Return the names of the targets for a processor's features, and for what the system permits."""

    def names_of(features, permitted):
        monkeypatch.setattr(llvm, "get_host_cpu_features", lambda: features)
        monkeypatch.setattr(llvm, "get_process_triple", lambda: "x86_64-unknown-linux-gnu")
        monkeypatch.setattr(target, "_tiles_are_permitted", lambda: permitted)
        return [item.name for item in target.available.__wrapped__()]

    return names_of


def test_tiles_need_the_processor_and_the_permission(names):
    assert names(SAPPHIRE_RAPIDS, True) == ["amx", "avx512", "avx2", "portable"]
    assert names(SAPPHIRE_RAPIDS, False) == ["avx512", "avx2", "portable"]
    assert names({**SAPPHIRE_RAPIDS, "amx-int8": False}, True) == ["avx512", "avx2", "portable"]
    assert names({"avx2": True, "fma": True}, True) == ["avx2", "portable"]


@pytest.mark.parametrize("platform", ["darwin", "win32"])
def test_only_linux_is_asked_for_the_permission(monkeypatch, platform):
    monkeypatch.setattr(target.ctypes, "CDLL", lambda name: pytest.fail("no such call on this system"))
    monkeypatch.setattr(sys, "platform", platform)
    assert not target._tiles_are_permitted()


def test_targets_with_and_without_tiles_differ_by_nothing_else():
    with_tiles = [item for item in target.available() if item.tiles]
    for item in with_tiles:
        assert target.replace(item, name="avx512", tiles=False) in target.available()
