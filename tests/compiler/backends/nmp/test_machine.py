"""The machine: the numbers of the default one, which are those of its datasheet, and what is refused."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from mlhood.compiler.backends import nmp
from mlhood.compiler.backends.nmp.isa.assembly import INSTRUCTIONS
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.errors import CompilerError

TEXT = (Path(nmp.__file__).parent / "README.md").read_text(encoding="utf-8")


def test_the_default_machine_has_the_published_peaks():
    machine = default_machine()
    assert [machine.units * machine.lanes(size) * machine.clock_hz for size in (1, 2)] == [512 * 10**9, 256 * 10**9]
    assert (machine.units, machine.memory_bytes) == (32, 4 * 8192)


@pytest.mark.parametrize("instruction", INSTRUCTIONS.values())
def test_every_instruction_is_described_in_the_words_of_its_class(instruction):
    first = (instruction.__doc__ or "").strip().splitlines()[0].rstrip(".")
    assert f"| `{instruction.mnemonic}` | {first} |" in TEXT


def test_every_parameter_has_its_default():
    machine = default_machine()
    values = {name: value for name, value in vars(machine).items() if name not in ("dram", "energy")}
    values |= {f"dram.{name}": value for name, value in vars(machine.dram).items()}
    values |= {f"energy.{name}": value for name, value in vars(machine.energy).items()}
    for name, value in values.items():
        assert f"| `{name}` | {value if isinstance(value, str) else f'{value:,}'} |" in TEXT, name
    assert "512 GMAC/s for int8" in TEXT


@pytest.mark.parametrize("change", [{"tiles": 0}, {"tilelets": True}, {"blob_bytes": 4.0}, {"blobs": 3}])
def test_an_invalid_machine_is_refused(change):
    with pytest.raises(CompilerError, match=f"invalid {next(iter(change))}"):
        replace(default_machine(), **change)
