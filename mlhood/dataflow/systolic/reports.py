"""SCALE-Sim's three reports, to the digit, as its version 3.0.0 or 2.0.2 writes them.

Its counts differ from those of `mlhood.dataflow.systolic.count` in three places, which stand only here:

1. Total cycles are the number of the last cycle, counted from 0: one less than there are.
2. For "os" each fold adds R + C to the writes of outputs, on top of the outputs.
3. Compute utilisation takes a fold of "ws" and "is" to be C - 1 cycles longer than it is.

Version 2 has no column for cycles with the first fetch, and takes outputs to stop leaving for DRAM with the word that
is last in order; an earlier one may still be on its way.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from fractions import Fraction

from mlhood.dataflow.systolic.array import Array
from mlhood.dataflow.systolic.layer import Layer
from mlhood.dataflow.systolic.mapping import Counts, Fold, count, fold_cycles, folds, map_layer
from mlhood.dataflow.systolic.memory import Memories, Traffic, follow
from mlhood.errors import DataflowError

Row = dict[str, int | float]


@dataclass(frozen=True)
class Report:
    """A layer's rows in the three reports; their columns are the keys, in SCALE-Sim's order.

    Args:
        layer: Whose.
        counts: The closed forms.
        memories: The traffic.
        compute: The row in COMPUTE_REPORT.csv.
        bandwidth: In BANDWIDTH_REPORT.csv: words a cycle.
        access: In DETAILED_ACCESS_REPORT.csv.
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
    """Count a layer and follow its words, and return what SCALE-Sim would report.

    Raises:
        DataflowError: The layer has too many words to follow each, or the version is not known.
    """
    if version not in VERSIONS:
        raise DataflowError("this version's reports are not known", expected=VERSIONS, got=version)
    counts, memories = count(layer, array), follow(layer, array)
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
    """Return one of the `FILES` as SCALE-Sim writes it: a header, a row a layer, and a comma behind each value."""
    rows: list[Row] = [getattr(one, FILES[name]) for one in reports]
    lines = [["LayerID", *rows[0]]] + [[number, *row.values()] for number, row in enumerate(rows)]
    return "".join(f"{', '.join(str(value) for value in line)},\n" for line in lines)


def _prefetch(memories: Memories, version: int) -> Row:
    if version == 2:
        return {}
    start = min(memories.ifmap.dram_start, memories.filter.dram_start)
    return {"Total Cycles (incl. prefetch)": memories.ofmap.dram_stop - start}


def _compute(layer: Layer, array: Array, counts: Counts) -> Row:
    total = _total_cycles(counts)
    mapping = map_layer(layer, array.dataflow)
    pieces = folds(mapping, array.rows, array.columns)
    believed = fold_cycles(mapping, array) + (0 if array.dataflow == "os" else array.columns - 1)
    busy = array.elements * believed
    return {
        "Total Cycles": total,
        "Stall Cycles": 0,
        "Overall Util %": 100 * layer.macs / (total * array.elements),
        "Mapping Efficiency %": _mean(pieces, lambda fold: fold.rows * fold.columns / array.elements) * 100,
        "Compute Util %": _mean(pieces, lambda fold: fold.rows * fold.columns * mapping.steps / busy) * 100,
    }


def _total_cycles(counts: Counts) -> int:
    """Return the number of the last cycle; 1 where that is 0, by which SCALE-Sim divides."""
    return max(counts.cycles - 1, 1)


def _mean(pieces: list[Fold], of_one: Callable[[Fold], float]) -> float:
    """Return the mean over folds.

    The sum is exact, as that of Python's floats nearly is since 3.12; before, SCALE-Sim's last digit may differ.
    """
    total = sum(Fraction(of_one(fold)) * fold.count for fold in pieces)
    return float(total) / sum(fold.count for fold in pieces)


def _bandwidth(traffic: dict[str, Traffic], accesses: dict[str, int], total: int) -> Row:
    words = {"IFMAP": "IFMAP", "Filter": "FILTER", "OFMAP": "OFMAP"}
    sram = {f"Avg {words[name]} SRAM BW": number / total for name, number in accesses.items()}
    lasted = {name: one.dram_stop - one.dram_start + 1 for name, one in traffic.items()}
    return sram | {f"Avg {words[name]} DRAM BW": one.dram / lasted[name] for name, one in traffic.items()}


def _access(traffic: dict[str, Traffic], accesses: dict[str, int]) -> Row:
    row: Row = {}
    for name, one in traffic.items():
        row[f"SRAM {name} Start Cycle"] = float(one.sram_start)
        row[f"SRAM {name} Stop Cycle"] = float(one.sram_stop)
        row[f"SRAM {name} {_verb(name)}"] = accesses[name]
    for name, one in traffic.items():
        row[f"DRAM {name} Start Cycle"] = float(one.dram_start)
        row[f"DRAM {name} Stop Cycle"] = float(one.dram_stop)
        row[f"DRAM {name} {_verb(name)}"] = one.dram
    return row


def _verb(name: str) -> str:
    return "Writes" if name == "OFMAP" else "Reads"
