"""The high-level IR: a strongly typed graph of tensor operators.

In: nodes that a front end adds to a `Graph`. Out: a graph that `verify` accepts, its text, its drawing, or its
difference to another one. No module imports the operators but `importer`, a facade for the notebooks.
"""

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Dim, Quantization, TensorType
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value
from mlhood.compiler.hir.verify import verify

__all__ = [
    "Constant",
    "Dim",
    "Graph",
    "Node",
    "Operator",
    "Placeholder",
    "Quantization",
    "TensorType",
    "Value",
    "verify",
]
