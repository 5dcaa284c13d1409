"""The stage "lowered" for the CPU: layouts, and element-wise operators as epilogues of kernels or as loops."""

from __future__ import annotations

from mlhood.compiler.backends.cpu.attention import lower_attention
from mlhood.compiler.backends.cpu.epilogues import (
    expand_normalizations,
    expand_powers,
    fuse_chains,
    fuse_epilogues,
    split_activations,
)
from mlhood.compiler.backends.cpu.layouts import block_activations, widen_convolutions
from mlhood.compiler.hir.graph import Graph
from mlhood.kernels import elementwise
from mlhood.kernels.codegen.target import Target, host

OPERATIONS = frozenset(elementwise.OPERATIONS) - {"Constant", "Pow"}  # those that steps of a chain are called


def lower_for_cpu(graph: Graph, target: Target | None = None) -> Graph:
    """Return a graph with the layouts and operators that the CPU's kernels compute.

    Args:
        graph: A verified graph; not modified.
        target: The processor; the host by default.
    """
    graph, lanes = graph.copy(), (target or host()).lanes
    widen_convolutions(graph)
    split_activations(graph, OPERATIONS)
    lower_attention(graph)
    expand_normalizations(graph)
    expand_powers(graph)
    fuse_chains(graph, OPERATIONS, most_inputs=1)
    fuse_epilogues(graph, OPERATIONS)
    graph = block_activations(graph, lanes)
    fuse_chains(graph, OPERATIONS)
    return graph
