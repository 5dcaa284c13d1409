"""Graph optimisation: one module per pass, the table of passes, and the pass manager.

A pass modifies a graph in place and returns whether it changed anything. It preserves the semantics of the graph, the
names and types of its placeholders and outputs, and the names of all remaining values: a name denotes the same tensor
before and after. To add a pass, write such a module and add its function to `PASSES`.

In: a verified graph. Out: an equivalent graph that is cheaper to execute (`optimize`), and on request a record of the
passes that changed it (`History`).
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.passes.activation import fuse_activation
from mlhood.compiler.passes.arithmetic import fold_arithmetic
from mlhood.compiler.passes.batch_normalization import fold_batch_normalization
from mlhood.compiler.passes.clean_quantization import clean_quantization
from mlhood.compiler.passes.common_subexpressions import merge_common_subexpressions
from mlhood.compiler.passes.constant_folding import fold_constants
from mlhood.compiler.passes.dead_code import remove_dead_code
from mlhood.compiler.passes.dense import products_to_dense
from mlhood.compiler.passes.gates import fuse_gates
from mlhood.compiler.passes.gelu import fuse_gelu
from mlhood.compiler.passes.history import History, PassRun
from mlhood.compiler.passes.layer_normalization import fuse_layer_normalization
from mlhood.compiler.passes.limits import limits_to_clip
from mlhood.compiler.passes.means import means_to_pools
from mlhood.compiler.passes.no_ops import remove_no_ops
from mlhood.compiler.passes.padding import merge_padding
from mlhood.compiler.passes.reshapes import merge_reshapes
from mlhood.compiler.passes.residual import fuse_residual
from mlhood.compiler.passes.transposes import sink_transposes
from mlhood.errors import CompilerError, nearest

__all__ = ["PASSES", "History", "Pass", "PassRun", "optimize"]

Pass = Callable[[Graph], bool]
Observer = Callable[[str, Graph], None]

PASSES: dict[str, Pass] = {
    function.__name__: function
    for function in (
        remove_dead_code,
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
        fold_batch_normalization,
        fold_arithmetic,
        merge_padding,
        merge_common_subexpressions,
        fuse_residual,
        fuse_activation,
        clean_quantization,
    )
}
"""The passes by name, in execution order: first removal, then canonicalisation, which exposes patterns, then folding
into layers, and last fusion, because nothing can be folded into a layer with an activation."""

# Limit on the rounds that do not reduce the number of nodes, to detect passes that undo each other's changes.
MAX_IDLE_ROUNDS = 50


@gc_paused()
def optimize(
    graph: Graph, passes: Iterable[str] | None = None, observe: Observer | None = None, *, check: bool = False
) -> Graph:
    """Return an optimised copy of a graph: run the passes in order, repeatedly, to a fixed point.

    Args:
        graph: A verified graph; not modified.
        passes: Names of the passes to run, in this order; all of `PASSES` by default.
        observe: Called with a pass's name and the graph after each pass that changed it; see `History`.
        check: Verify the graph after each pass that changed it.

    Raises:
        CompilerError: A pass is unknown, the graph has a cycle, or the passes do not reach a fixed point.
    """
    selected = _select(PASSES if passes is None else passes)
    graph = graph.copy()
    idle = 0
    while True:
        count = len(graph.nodes)
        changed = [name for name, run in selected.items() if _apply(name, run, graph, observe, check)]
        if not changed:
            return graph
        idle += len(graph.nodes) >= count
        if idle > MAX_IDLE_ROUNDS:
            raise CompilerError(
                "the passes do not reach a fixed point",
                where=f"graph {graph.name!r}",
                expected=f"no change after {MAX_IDLE_ROUNDS} rounds in which the graph does not shrink",
                got=f"changes by {', '.join(changed)}",
                todo="run optimize with `passes` that omits one of them, and report the graph",
            )


def _select(names: Iterable[str]) -> dict[str, Pass]:
    names = list(names)
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise CompilerError(
            "unknown pass",
            expected=", ".join(PASSES),
            got=", ".join(map(str, unknown)),
            todo=nearest(unknown[0], PASSES),
        )
    return {name: PASSES[name] for name in names}


def _apply(name: str, run: Pass, graph: Graph, observe: Observer | None, check: bool) -> bool:
    changed = run(graph)
    if changed and check:
        verify(graph)
    if changed and observe is not None:
        observe(name, graph)
    return changed
