"""Graph optimisation: the passes, in modules by kind, and their table.

A pass modifies a graph in place and returns whether it changed anything. It preserves the semantics of the graph, the
names and types of its placeholders and outputs, and the names of all remaining values: a name denotes the same tensor
before and after. Its docstring gives its rules by number. To add a pass, write such a function and add it to `PASSES`.

In: a verified graph. Out: an equivalent graph that is cheaper to execute (`optimize`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.pass_manager import run_passes
from mlhood.compiler.passes.canonicalization import (
    keep_packed_weights,
    limits_to_clip,
    means_to_pools,
    products_to_dense,
)
from mlhood.compiler.passes.clean_quantization import clean_quantization
from mlhood.compiler.passes.composites import fuse_gates, fuse_gelu, fuse_layer_normalization
from mlhood.compiler.passes.constant_folding import fold_constants
from mlhood.compiler.passes.fusion import fold_affine, fuse_activation, fuse_residual, merge_padding
from mlhood.compiler.passes.removal import merge_common_subexpressions, merge_reshapes, remove_dead_code, remove_no_ops
from mlhood.compiler.passes.transposes import sink_transposes

__all__ = ["PASSES", "Pass", "optimize"]

Pass = Callable[[Graph], bool]
Observer = Callable[[str, Graph], None]

PASSES: dict[str, Pass] = {
    function.__name__: function
    for function in (
        remove_dead_code,
        keep_packed_weights,
        fold_constants,
        remove_no_ops,
        merge_reshapes,
        sink_transposes,
        limits_to_clip,
        fuse_layer_normalization,
        fuse_gelu,
        fuse_gates,
        means_to_pools,
        products_to_dense,
        fold_affine,
        merge_padding,
        merge_common_subexpressions,
        fuse_residual,
        fuse_activation,
        clean_quantization,
    )
}
"""The passes by name, in execution order: first removal, then canonicalisation, which exposes patterns, then folding
into layers, and last fusion, because nothing can be folded into a layer with an activation."""


def optimize(
    graph: Graph, passes: Iterable[str] | None = None, observe: Observer | None = None, *, check: bool = False
) -> Graph:
    """Return an optimised copy of a graph: run the passes in order, repeatedly, to a fixed point.

    Args:
        graph: A verified graph; not modified.
        passes: Names of the passes to run, in this order; all of `PASSES` by default.
        observe: Called with a pass's name and the graph after each pass that changed it.
        check: Verify the graph after each pass that changed it.

    Raises:
        CompilerError: A pass is unknown, the graph has a cycle, or the passes do not reach a fixed point.
    """
    return run_passes(graph, PASSES, passes, observe, verify if check else None)
