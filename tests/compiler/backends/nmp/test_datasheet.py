"""The datasheet says what the code does."""

from __future__ import annotations

from pathlib import Path

import pytest

from mlhood.compiler.backends import nmp
from mlhood.compiler.backends.nmp.isa.encoding import INSTRUCTIONS
from mlhood.compiler.backends.nmp.machine import default_machine

TEXT = (Path(nmp.__file__).parent / "README.md").read_text(encoding="utf-8")


@pytest.mark.parametrize("instruction", INSTRUCTIONS)
def test_every_instruction_is_described_in_the_words_of_its_class(instruction):
    first = (instruction.__doc__ or "").strip().splitlines()[0].rstrip(".")
    assert f"| `{instruction.mnemonic}` | {instruction.opcode} | {first} |" in TEXT


def test_every_parameter_has_its_default():
    machine = default_machine()
    values = {name: value for name, value in vars(machine).items() if name not in ("dram", "energy")}
    values |= {f"dram.{name}": value for name, value in vars(machine.dram).items()}
    values |= {f"energy.{name}": value for name, value in vars(machine.energy).items()}
    for name, value in values.items():
        assert f"| `{name}` | {value if isinstance(value, str) else f'{value:,}'} |" in TEXT, name
    assert f"{machine.peak(1) / 1e9:,.0f} GMAC/s for int8" in TEXT
