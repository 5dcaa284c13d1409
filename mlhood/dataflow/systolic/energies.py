"""Energy of a layer: each access times its cost at that level.

As in Chen, Emer and Sze, "Eyeriss: A Spatial Architecture for Energy-Efficient Dataflow for Convolutional Neural
Networks" (ISCA 2016), energy is relative to a multiply-accumulate and excludes clock, control and leakage.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.dataflow.systolic.mapping import Counts
from mlhood.dataflow.systolic.memory import Memories


@dataclass(frozen=True)
class EnergyTable:
    """Energy per access to a word.

    Args:
        mac: A multiply-accumulate.
        register: In the processing element itself.
        hop: From a processing element to its neighbour.
        sram: In a memory at the array's edge.
        dram: Off chip.
        unit: Of all of them.
        source: Reference for the values.
    """

    mac: float
    register: float
    hop: float
    sram: float
    dram: float
    unit: str
    source: str


EYERISS = EnergyTable(
    mac=1,
    register=1,
    hop=2,
    sram=6,
    dram=200,
    unit="MAC",
    source="Chen, Emer, Sze: Eyeriss, ISCA 2016, table IV: words of 16 bits, a commercial process of 65 nm",
)


def energy(counts: Counts, memories: Memories, table: EnergyTable = EYERISS) -> dict[str, float]:
    """Return the energy of a layer by level, in the table's unit.

    The register is read once per multiply-accumulate, for the stationary operand. Memories count where the array reads
    or writes them; their transfers from and to DRAM are included in the cost of DRAM.
    """
    sram = counts.ifmap_reads + counts.filter_reads + counts.ofmap_writes
    return {
        "MAC": counts.macs * table.mac,
        "register": counts.macs * table.register,
        "hops": counts.hops * table.hop,
        "SRAM": sram * table.sram,
        "DRAM": memories.dram * table.dram,
    }
