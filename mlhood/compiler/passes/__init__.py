"""Graph optimisation: one module a pass, the table of them, and what runs them.

A pass takes a graph, edits it in place, and tells whether it changed anything. It keeps the meaning of the graph, the
names and types of its placeholders and outputs, and the names of all values that stay: the same name stands for the
same tensor before and after. To add a pass, write such a module and name its function in `PASSES`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlhood.compiler.hir.garbage_collection import gc_paused
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.passes.activation import fuse_activation
from mlhood.compiler.passes.arithmetic import fold_arithmetic
from mlhood.compiler.passes.batch_normalization import fold_batch_normalization
from mlhood.compiler.passes.clean_quantization import clean_quantization
from mlhood.compiler.passes.common_subexpressions import merge_common_subexpressions
from mlhood.compiler.passes.constant_folding import fold_constants
from mlhood.compiler.passes.dead_code import remove_dead_code
from mlhood.compiler.passes.dense import products_to_dense
from mlhood.compiler.passes.history import History, Step
from mlhood.compiler.passes.limits import limits_to_clip
from mlhood.compiler.passes.means import means_to_pools
from mlhood.compiler.passes.no_ops import remove_no_ops
from mlhood.compiler.passes.padding import merge_padding
from mlhood.compiler.passes.reshapes import merge_reshapes
from mlhood.compiler.passes.residual import fuse_residual
from mlhood.compiler.passes.transposes import sink_transposes
from mlhood.errors import CompilerError

__all__ = ["PASSES", "History", "Pass", "Step", "optimize"]

Pass = Callable[[Graph], bool]
Observer = Callable[[str, Graph], None]

# In the order in which they run: first what removes, then what respells so that patterns are found, then what folds
# into layers, and last what fuses, since a layer with an activation takes nothing more.
PASSES: dict[str, Pass] = {
    one.__name__: one
    for one in (
        remove_dead_code,
        fold_constants,
        remove_no_ops,
        merge_reshapes,
        sink_transposes,
        limits_to_clip,
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

# Rounds that leave as many nodes as there were, or more. A graph that shrinks may take as many rounds as it needs.
IDLE_ROUNDS = 50


@gc_paused()
def optimize(
    graph: Graph, passes: Iterable[str] | None = None, observe: Observer | None = None, *, check: bool = False
) -> Graph:
    """Return a graph that means the same and computes less; the given one stays as it is.

    The passes run in order, again and again, until none changes anything.

    Args:
        graph: A verified graph.
        passes: Names of the passes to run, in this order; all of `PASSES` if left out.
        observe: Called with a pass's name and the graph after each pass that changed it; see `History`.
        check: Whether to verify the graph after each pass that changed it.

    Raises:
        CompilerError: There is no such pass, the graph has a cycle, or passes undo each other's work without end.
    """
    chosen = _chosen(PASSES if passes is None else passes)
    graph = graph.copy()
    idle = 0
    while True:
        before = len(graph.nodes)
        changed = [name for name, one in chosen.items() if _apply(name, one, graph, observe, check)]
        if not changed:
            return graph
        idle += len(graph.nodes) >= before
        if idle > IDLE_ROUNDS:
            raise CompilerError(
                "the passes do not come to an end",
                where=f"graph {graph.name!r}",
                expected=f"no change after {IDLE_ROUNDS} rounds in which the graph does not shrink",
                got=f"still changing it: {', '.join(changed)}",
                todo="run optimize with `passes` that leaves one of them out, and report the graph",
            )


def _chosen(names: Iterable[str]) -> dict[str, Pass]:
    names = list(names)
    unknown = [name for name in names if name not in PASSES]
    if unknown:
        raise CompilerError("there is no such pass", expected=", ".join(PASSES), got=", ".join(map(str, unknown)))
    return {name: PASSES[name] for name in names}


def _apply(name: str, one: Pass, graph: Graph, observe: Observer | None, check: bool) -> bool:
    changed = one(graph)
    if changed and check:
        verify(graph)
    if changed and observe is not None:
        observe(name, graph)
    return changed
