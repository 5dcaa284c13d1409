"""Systolic arrays of R x C processing elements, weight, input or output stationary.

In: an array and layers, from Python or from SCALE-Sim's files (`read_config`, `read_topology`). Out: cycles and
accesses in closed form (`count`), the array simulated cycle by cycle (`simulate`), its memories simulated word by word
(`simulate_memories`), and energy (`energy`).
"""

from mlhood.dataflow.systolic.array import DATAFLOWS, Array, ArrayLayer, gemm_layer, resnet_layers
from mlhood.dataflow.systolic.files import read_config, read_topology
from mlhood.dataflow.systolic.mapping import Counts, Mapping, count, folds, map_layer
from mlhood.dataflow.systolic.memory import ENERGY, ENERGY_SOURCE, Memories, energy, simulate_memories
from mlhood.dataflow.systolic.simulator import Run, simulate

__all__ = [
    "DATAFLOWS",
    "ENERGY",
    "ENERGY_SOURCE",
    "Array",
    "ArrayLayer",
    "Counts",
    "Mapping",
    "Memories",
    "Run",
    "count",
    "energy",
    "folds",
    "gemm_layer",
    "map_layer",
    "read_config",
    "read_topology",
    "resnet_layers",
    "simulate",
    "simulate_memories",
]
