"""The machine's file: defaults, other machines, and what is refused."""

from __future__ import annotations

import pytest

from mlhood.compiler.backends.nmp.machine import default_machine, parse_machine, read_machine
from mlhood.errors import CompilerError


def test_the_default_machine_has_the_published_peaks():
    machine = default_machine()
    assert (machine.peak(1), machine.peak(2)) == (512 * 10**9, 256 * 10**9)
    assert machine.bandwidth == pytest.approx(8.533e9, rel=1e-3)
    assert (machine.units, machine.memory_bytes) == (32, 4 * 8192)


def test_what_a_file_leaves_out_is_the_default_machines(tmp_path):
    path = tmp_path / "small.toml"
    path.write_text("name = 'small'\ntiles = 1\ntilelets = 1\n[dram]\nburst_cycles = 30\n", encoding="utf-8")
    machine = read_machine(path)
    assert (machine.name, machine.units, machine.blob_bytes) == ("small", 1, 8192)
    assert (machine.dram.burst_cycles, machine.dram.burst_bytes) == (30, 128)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("tiles = 0", "invalid tiles"),
        ("tiles = 65", "invalid tiles"),
        ("tiles = true", "invalid tiles"),
        ("tiles = 4.0", "invalid tiles"),
        ("blobs = 3", "invalid blobs"),
        ("name = ''", "invalid name"),
        ("cores = 8", "unknown entry"),
        ("dram = 3", "must be a table"),
        ("[dram]\nburst_bytes = -1", "invalid burst_bytes"),
        ("[energy]\nmac_8 = -0.5", "invalid mac_8"),
        ("[energy]\nmac_8 = inf", "invalid mac_8"),
        ("[energy]\nmac_8 = nan", "invalid mac_8"),
        ("tiles = ", "not TOML"),
    ],
)
def test_an_invalid_file_is_refused(tmp_path, text, message):
    path = tmp_path / "machine.toml"
    path.write_text(text, encoding="utf-8")
    with pytest.raises(CompilerError, match=message):
        read_machine(path)


def test_a_file_that_cannot_be_read(tmp_path):
    with pytest.raises(CompilerError, match="cannot be read"):
        read_machine(tmp_path / "none.toml")


def test_a_text_without_a_default_must_be_complete():
    with pytest.raises(CompilerError, match="missing"):
        parse_machine("name = 'x'")
