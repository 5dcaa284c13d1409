"""Several kernels one after another, in a single native call: no Python between them.

All threads go through the sequence together: each kernel returns in each thread when all of its tasks are finished.
A thread enters through a gate, a counter of those inside with one high bit, `CLOSED`. The calling thread opens it, and
closes it at the end and waits until the others have left; a thread that comes too late finds it closed and returns, so
nothing waits for one that the operating system has not woken up.
"""

from __future__ import annotations

from contextlib import AbstractContextManager

from llvmlite import ir

from mlhood.kernels.codegen.arguments import COUNTERS, Arguments
from mlhood.kernels.codegen.ir_builder import ADDRESS, INDEX, Int, Pointer
from mlhood.kernels.codegen.target import Target

FIELDS = ("first", "last", "table", "gate", "limit")
CLOSED = 2**32
ENTRY = 2  # words per kernel in the table: its address, and that of its argument block


def build(target: Target) -> str:
    """Return the LLVM IR of a kernel that runs the kernels `first` to `last` - 1 of a table."""
    sequence = _Sequence(arguments := Arguments(FIELDS))
    code = arguments.code
    with code.builder.if_else(code.integer("wait").equals(1)) as (caller, helper):
        with caller:
            sequence.run_as_caller()
        with helper:
            sequence.run_as_helper()
    return arguments.finished()


class _Sequence:
    def __init__(self, arguments: Arguments) -> None:
        self.code, self.arguments = arguments.code, arguments
        self.table, self.gate = arguments.pointer("table", INDEX), arguments.pointer("gate", INDEX)

    def run_as_caller(self) -> None:
        """Reset the counters of all kernels, let the other threads in, and wait until they have left."""
        with self._kernels() as i:
            block = self._address(i, 1)
            for counter in range(len(COUNTERS)):
                block.at(counter).store(INDEX(0))
        self._add_to_gate(-CLOSED)
        self._run()
        self._add_to_gate(CLOSED)
        builder = self.code.builder
        with self.code.while_loop(
            lambda: builder.not_(
                Int(builder, builder.load_atomic(self.gate.value, "acquire", 8, typ=INDEX)).equals(CLOSED)
            )
        ):
            pass

    def run_as_helper(self) -> None:
        """Take part if the gate is open, and no more than `limit` threads are inside."""
        before = self._add_to_gate(1)
        with self.code.builder.if_then(before < self.arguments.integer("limit")):
            self._run()
        self._add_to_gate(-1)

    def _run(self) -> None:
        builder = self.code.builder
        kind = ir.FunctionType(ir.VoidType(), [ADDRESS, INDEX])
        with self._kernels() as i:
            kernel = builder.inttoptr(self.table.at(i * ENTRY).load(), kind.as_pointer())
            builder.call(kernel, [self._address(i, 1).value, INDEX(1)])

    def _kernels(self) -> AbstractContextManager[Int]:
        """Build a loop over the kernels to run; a thread reads which only after it has entered."""
        return self.code.loop(self.arguments.integer("first"), self.arguments.integer("last"))

    def _address(self, i: Int, word: int) -> Pointer:
        value = self.table.at(i * ENTRY + word).load()
        return Pointer(self.code.builder, self.code.builder.inttoptr(value, ADDRESS), INDEX)

    def _add_to_gate(self, change: int) -> Int:
        return Int(self.code.builder, self.code.builder.atomic_rmw("add", self.gate.value, INDEX(change), "seq_cst"))
