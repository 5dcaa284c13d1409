"""The table of all instructions; see `instruction` for what they have in common."""

from __future__ import annotations

from mlhood.compiler.backends.nmp.isa.elementwise import Add, Dense, Rescale, Table
from mlhood.compiler.backends.nmp.isa.instruction import Instruction
from mlhood.compiler.backends.nmp.isa.transfers import Barrier, Load, Store, Wait
from mlhood.compiler.backends.nmp.isa.windowed import Convolve, Depthwise, Pool

INSTRUCTIONS: tuple[type[Instruction], ...] = (
    Load,
    Store,
    Convolve,
    Depthwise,
    Dense,
    Pool,
    Add,
    Rescale,
    Table,
    Wait,
    Barrier,
)
