"""The pass manager: runs passes over a graph or a program to a fixed point."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import TYPE_CHECKING, TypeVar

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.names import gc_paused
from mlhood.errors import CompilerError, nearest

if TYPE_CHECKING:
    from mlhood.compiler.lir.program import Program

# Limit on the rounds that make nothing shorter, to detect passes that undo each other's changes.
MAX_IDLE_ROUNDS = 50

IR = TypeVar("IR", Graph, "Program")


@gc_paused()
def run_passes(
    ir: IR,
    passes: Mapping[str, Callable[[IR], bool]],
    selected: Iterable[str] | None,
    observe: Callable[[str, IR], None] | None,
    verify: Callable[[IR], None] | None,
) -> IR:
    """Return an optimised copy: run the passes in order, repeatedly, to a fixed point.

    Args:
        ir: A verified graph or program; not modified.
        passes: The passes by name; each modifies its argument and returns whether it changed anything.
        selected: Names of the passes to run, in this order; all by default.
        observe: Called with a pass's name and the result after each pass that changed something.
        verify: Called with the result after each pass that changed something.

    Raises:
        CompilerError: A pass is unknown, a graph has a cycle, or the passes do not reach a fixed point.
    """
    names = list(passes if selected is None else selected)
    if unknown := [name for name in names if name not in passes]:
        raise CompilerError(
            "unknown pass",
            expected=", ".join(passes),
            got=", ".join(map(str, unknown)),
            todo=nearest(unknown[0], passes),
        )

    def run(name: str) -> bool:
        changed = passes[name](ir)
        if changed and verify is not None:
            verify(ir)
        if changed and observe is not None:
            observe(name, ir)
        return changed

    ir, idle = ir.copy(), 0
    while True:
        length = _length(ir)
        changed = [name for name in names if run(name)]
        if not changed:
            return ir
        idle += _length(ir) >= length
        if idle > MAX_IDLE_ROUNDS:
            raise CompilerError(
                "the passes do not reach a fixed point",
                where=ir.name,
                expected=f"no change after {MAX_IDLE_ROUNDS} rounds in which nothing becomes shorter",
                got=f"changes by {', '.join(changed)}",
                todo="run optimize with `passes` that omits one of them, and report the model",
            )


def _length(ir: Graph | Program) -> int:
    return len(ir.nodes if isinstance(ir, Graph) else ir.instructions)
