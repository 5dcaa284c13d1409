"""SCALE-Sim's three reports, to the digit, as its versions 3.0.0 and 2.0.2 write them.

Its counts differ from those of `mlhood.dataflow.systolic.count` in three ways, which are reproduced only here:

1. Total cycles are the index of the last cycle, counted from 0: one less than the number of cycles.
2. For "os" each fold adds R + C to the writes of outputs.
3. Compute utilisation assumes that a fold of "ws" and "is" is C - 1 cycles longer than it is.

Version 2 has no column for cycles including the prefetch, and its last cycle of writes to DRAM is that of the word that
is last in order; other words may be written later.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from mlhood.dataflow.systolic.array import Array, Layer
from mlhood.dataflow.systolic.mapping import Counts, Fold, count, fold_cycles, folds, map_layer
from mlhood.dataflow.systolic.memory import Memories, Traffic, simulate_memories
from mlhood.errors import DataflowError

Row = dict[str, int | float]


@dataclass(frozen=True)
class Report:
    """A layer's rows in the three reports; their columns are the keys, in SCALE-Sim's order.

    Args:
        layer: The layer.
        counts: Its closed forms.
        memories: Its traffic.
        compute: The row in COMPUTE_REPORT.csv.
        bandwidth: The row in BANDWIDTH_REPORT.csv: words per cycle.
        access: The row in DETAILED_ACCESS_REPORT.csv.
    """

    layer: Layer
    counts: Counts
    memories: Memories
    compute: Row
    bandwidth: Row
    access: Row


VERSIONS = (2, 3)
FILES = {"COMPUTE": "compute", "BANDWIDTH": "bandwidth", "DETAILED_ACCESS": "access"}


def report(layer: Layer, array: Array, version: int = 3) -> Report:
    """Count a layer, simulate its memories, and return what SCALE-Sim would report.

    Raises:
        DataflowError: The layer is too large to simulate its memories, or the version is unknown.
    """
    if version not in VERSIONS:
        raise DataflowError("unknown version of SCALE-Sim's reports", expected=VERSIONS, got=version)
    counts, memories = count(layer, array), simulate_memories(layer, array)
    writes = counts.ofmap_writes
    if array.dataflow == "os":
        writes += counts.folds * (array.rows + array.columns)
    ofmap = memories.ofmap
    if version == 2:
        ofmap = replace(ofmap, dram_stop=ofmap.dram_final)
    traffic = {"IFMAP": memories.ifmap, "Filter": memories.filter, "OFMAP": ofmap}
    accesses = {"IFMAP": counts.ifmap_reads, "Filter": counts.filter_reads, "OFMAP": writes}
    return Report(
        layer,
        counts,
        memories,
        _prefetch(memories, version) | _compute(layer, array, counts),
        _bandwidth(traffic, accesses, _total_cycles(counts)),
        _access(traffic, accesses),
    )


def as_csv(reports: list[Report], name: str) -> str:
    """Return one of the `FILES` as SCALE-Sim writes it: a header, a row per layer, and a comma after each value."""
    rows: list[Row] = [getattr(report, FILES[name]) for report in reports]
    lines = [["LayerID", *rows[0]]] + [[i, *row.values()] for i, row in enumerate(rows)]
    return "".join(f"{', '.join(str(value) for value in line)},\n" for line in lines)


def _prefetch(memories: Memories, version: int) -> Row:
    if version == 2:
        return {}
    start = min(memories.ifmap.dram_start, memories.filter.dram_start)
    return {"Total Cycles (incl. prefetch)": memories.ofmap.dram_stop - start}


def _compute(layer: Layer, array: Array, counts: Counts) -> Row:
    total = _total_cycles(counts)
    mapping = map_layer(layer, array.dataflow)
    all_folds = folds(mapping, array.rows, array.columns)
    assumed_cycles = fold_cycles(mapping, array) + (0 if array.dataflow == "os" else array.columns - 1)
    element_cycles = array.elements * assumed_cycles
    return {
        "Total Cycles": total,
        "Stall Cycles": 0,
        "Overall Util %": 100 * layer.macs / (total * array.elements),
        "Mapping Efficiency %": _mean(all_folds, lambda fold: fold.rows * fold.columns / array.elements) * 100,
        "Compute Util %": _mean(all_folds, lambda fold: fold.rows * fold.columns * mapping.steps / element_cycles)
        * 100,
    }


def _total_cycles(counts: Counts) -> int:
    """Return the index of the last cycle; 1 instead of 0, as SCALE-Sim divides by it."""
    return max(counts.cycles - 1, 1)


def _mean(all_folds: list[Fold], value: Callable[[Fold], float]) -> float:
    """Return the mean over folds.

    The sum is exact, as that of Python's floats nearly is since 3.12; before, SCALE-Sim's last digit may differ.
    """
    total = sum(Fraction(value(fold)) * fold.count for fold in all_folds)
    return float(total) / sum(fold.count for fold in all_folds)


def _bandwidth(traffic: dict[str, Traffic], accesses: dict[str, int], total: int) -> Row:
    labels = {"IFMAP": "IFMAP", "Filter": "FILTER", "OFMAP": "OFMAP"}
    sram = {f"Avg {labels[name]} SRAM BW": number / total for name, number in accesses.items()}
    cycles = {name: operand.dram_stop - operand.dram_start + 1 for name, operand in traffic.items()}
    return sram | {f"Avg {labels[name]} DRAM BW": operand.dram / cycles[name] for name, operand in traffic.items()}


def _access(traffic: dict[str, Traffic], accesses: dict[str, int]) -> Row:
    row: Row = {}
    for name, operand in traffic.items():
        row[f"SRAM {name} Start Cycle"] = float(operand.sram_start)
        row[f"SRAM {name} Stop Cycle"] = float(operand.sram_stop)
        row[f"SRAM {name} {_verb(name)}"] = accesses[name]
    for name, operand in traffic.items():
        row[f"DRAM {name} Start Cycle"] = float(operand.dram_start)
        row[f"DRAM {name} Stop Cycle"] = float(operand.dram_stop)
        row[f"DRAM {name} {_verb(name)}"] = operand.dram
    return row


def _verb(name: str) -> str:
    return "Writes" if name == "OFMAP" else "Reads"
