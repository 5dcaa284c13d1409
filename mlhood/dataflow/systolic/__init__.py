"""Systolic arrays of R x C processing elements, weight, input or output stationary.

In: an array, and a matrix product or its sizes. Out: cycles in closed form (`count`), and the array simulated cycle by
cycle (`simulate`).
"""

from mlhood.dataflow.systolic.array import DATAFLOWS, Array, Counts, Product, count, resnet_layers
from mlhood.dataflow.systolic.simulator import Run, simulate

__all__ = ["DATAFLOWS", "Array", "Counts", "Product", "Run", "count", "resnet_layers", "simulate"]
