"""Systolic arrays: layers on R x C processing elements in weight, input and output stationary order.

`count` gives cycles and accesses in closed form, `simulate` moves the operands cycle by cycle, `report` follows each
word through the memories and says what SCALE-Sim would, whose files `read_config` and `read_topology` read.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.dataflow.systolic.array import DATAFLOWS, Array
    from mlhood.dataflow.systolic.config import read_config
    from mlhood.dataflow.systolic.energies import EYERISS, EnergyTable, energy
    from mlhood.dataflow.systolic.layer import Layer, gemm_layer, resnet_layers
    from mlhood.dataflow.systolic.mapping import Counts, Mapping, count, folds, map_layer
    from mlhood.dataflow.systolic.memory import Memories, follow
    from mlhood.dataflow.systolic.reports import Report, as_csv, report
    from mlhood.dataflow.systolic.simulator import Run, simulate
    from mlhood.dataflow.systolic.topology import read_topology

__all__ = [
    "DATAFLOWS",
    "EYERISS",
    "Array",
    "Counts",
    "EnergyTable",
    "Layer",
    "Mapping",
    "Memories",
    "Report",
    "Run",
    "as_csv",
    "count",
    "energy",
    "folds",
    "follow",
    "gemm_layer",
    "map_layer",
    "read_config",
    "read_topology",
    "report",
    "resnet_layers",
    "simulate",
]

_HOMES = {
    "DATAFLOWS": "array",
    "EYERISS": "energies",
    "Array": "array",
    "Counts": "mapping",
    "EnergyTable": "energies",
    "Layer": "layer",
    "Mapping": "mapping",
    "Memories": "memory",
    "Report": "reports",
    "Run": "simulator",
    "as_csv": "reports",
    "count": "mapping",
    "energy": "energies",
    "folds": "mapping",
    "follow": "memory",
    "gemm_layer": "layer",
    "map_layer": "mapping",
    "read_config": "config",
    "read_topology": "topology",
    "report": "reports",
    "resnet_layers": "layer",
    "simulate": "simulator",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: the command line must not wait for NumPy and Numba."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mlhood.dataflow.systolic' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.dataflow.systolic.{_HOMES[name]}"), name)
