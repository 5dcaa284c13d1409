"""What a layer costs in energy: each access times what one costs at its level.

Energy is counted as in Chen, Emer and Sze, "Eyeriss: A Spatial Architecture for Energy-Efficient Dataflow for
Convolutional Neural Networks" (ISCA 2016): relative to a multiply-accumulate, and without clocks, control and leakage.
"""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.dataflow.systolic.mapping import Counts
from mlhood.dataflow.systolic.memory import Memories


@dataclass(frozen=True)
class EnergyTable:
    """What one access to a word costs.

    Args:
        mac: A multiply-accumulate.
        register: In the element itself.
        hop: From an element to its neighbour.
        sram: In a memory at the array's edge.
        dram: Outside the chip.
        unit: Of all.
        source: Where the numbers stand.
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

    The register is read once a multiply-accumulate: for what stays there. Memories count where the array reads or
    writes them; that they are filled from DRAM and emptied into it is in the cost of DRAM.
    """
    sram = counts.ifmap_reads + counts.filter_reads + counts.ofmap_writes
    return {
        "MAC": counts.macs * table.mac,
        "register": counts.macs * table.register,
        "hops": counts.hops * table.hop,
        "SRAM": sram * table.sram,
        "DRAM": memories.dram * table.dram,
    }
