"""Optimisation of programs: the passes and their table.

A pass replaces a program's instructions and returns whether it changed anything. It preserves the outputs bit for bit,
and the declared weights; names of activations may change, as they denote memory, not values. Its docstring
gives its rules by number. To add a pass, write such a function and add it to `PASSES`.

In: a verified program. Out: an equivalent one that needs fewer instructions and less memory (`optimize`). `merging` is
what the passes that let buffers share memory have in common.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from mlhood.compiler.lir.passes.merging import eliminate_copies, share_buffers
from mlhood.compiler.lir.passes.schedule import schedule_instructions
from mlhood.compiler.lir.passes.simplification import eliminate_dead_stores, simplify_instructions, tighten_lifetimes
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.pass_manager import run_passes

__all__ = ["PASSES", "Pass", "optimize"]

Pass = Callable[[Program], bool]
Observer = Callable[[str, Program], None]

# In execution order: first removal, then sharing of memory, and last the lifetimes, which follow from what is left.
PASSES: dict[str, Pass] = {
    function.__name__: function
    for function in (
        eliminate_dead_stores,
        simplify_instructions,
        eliminate_copies,
        share_buffers,
        schedule_instructions,
        tighten_lifetimes,
    )
}


def optimize(
    program: Program, passes: Iterable[str] | None = None, observe: Observer | None = None, *, check: bool = False
) -> Program:
    """Return an optimised copy of a program: run the passes in order, repeatedly, to a fixed point.

    A pass removes instructions, moves them to where it leaves them, or lowers the maximum of the live bytes, so there
    is one.

    Args:
        program: A verified program; not modified.
        passes: Names of the passes to run, in this order; all of `PASSES` by default.
        observe: Called with a pass's name and the program after each pass that changed it.
        check: Verify the program after each pass that changed it.

    Raises:
        CompilerError: A pass is unknown.
    """
    return run_passes(program, PASSES, passes, observe, verify if check else None)
