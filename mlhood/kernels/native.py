"""Calls of native kernels, prepared once: alone, or many in a sequence that is a single native call.

All threads go through a sequence together: each kernel returns in each thread when all of its tasks are finished.
A thread enters through a gate, a counter of those inside with one high bit, `CLOSED`. The calling thread opens it, and
closes it at the end and waits until the others have left; a thread that comes too late finds it closed and returns, so
nothing waits for one that the operating system has not woken up.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field

import numpy as np
from llvmlite import ir

from mlhood.kernels import parallel
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.arguments import COUNTERS, Arguments, pack_arguments, word_index
from mlhood.kernels.codegen.ir_builder import ADDRESS, INDEX, Int, Pointer
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.parallel import LINE

FIELDS = ("first", "last", "table", "gate", "limit")
CLOSED = 2**32
ENTRY = 2  # words per kernel in the table: its address, and that of its argument block


@dataclass(frozen=True)
class NativeCall:
    """A native kernel and its argument block, complete but for the addresses of its operands.

    Args:
        kernel: The native function.
        words: int64, its argument block; its counters are zero.
        operands: The word of each operand's address, by name: "x", "out". An operand that is left out stays null.
        workspace: Bytes of scratch memory that it needs while it runs, by the name of an operand.
        keep: Owners of the memory whose addresses the argument block holds: weights, tables.
        name: What it is called in reports.
    """

    kernel: jit.Kernel
    words: np.ndarray
    operands: Mapping[str, int]
    workspace: Mapping[str, int] = field(default_factory=dict)
    keep: tuple[np.ndarray, ...] = ()
    name: str = ""


def native_call(
    kernel: jit.Kernel,
    fields: Sequence[str],
    values: dict[str, int],
    operands: Sequence[str],
    *,
    floats: dict[str, float] | None = None,
    workspace: Mapping[str, int] | None = None,
    keep: tuple[np.ndarray, ...] = (),
    name: str = "",
) -> NativeCall:
    """Return a call of a kernel whose argument block has these fields.

    Args:
        fields: The fields of the argument block; each is in `values`, in `floats`, or an operand.
        values: Integers by field.
        operands: The fields that hold addresses of operands, the workspaces among them.
        floats: float32 by field.
        kernel, workspace, keep, name: See `NativeCall`.
    """
    words = pack_arguments(fields, {**values, **dict.fromkeys(operands, 0)}, floats)
    return NativeCall(kernel, words, {o: word_index(fields, o) for o in operands}, workspace or {}, keep, name)


def run(call: NativeCall, threads: int = 1, **arrays: np.ndarray) -> None:
    """Run a kernel once.

    Args:
        call: The call, prepared for this number of threads.
        threads: Number of threads.
        arrays: Contiguous arrays of the right dtype and size for its operands, by name; workspaces are allocated.
    """
    arrays |= {name: parallel.scratch(name, -(-size // 4)) for name, size in call.workspace.items()}
    words = call.words.copy()
    for name, array in arrays.items():
        words[call.operands[name]] = parallel.data_address(array)
    parallel.launch(call.kernel, words, (call, arrays), threads)


class KernelSequence:
    """Calls that run one after another, in one native call, on memory whose addresses are known.

    Args:
        calls: The calls, prepared for this number of threads.
        threads: Number of threads.
        target: The processor.
    """

    def __init__(self, calls: Sequence[NativeCall], threads: int = 1, target: Target | None = None) -> None:
        self.calls, self.threads = tuple(calls), threads
        # no two blocks share a cache line: its counters are written by all threads
        lengths = [-(-call.words.size * 8 // LINE) * LINE // 8 for call in calls]
        self.starts = np.cumsum([0, *lengths])[:-1].tolist()
        self.words = parallel.aligned(2 * sum(lengths)).view(np.int64)
        self.words[:] = 0
        for start, call in zip(self.starts, calls, strict=True):
            self.words[start : start + call.words.size] = call.words
        base = self.words.ctypes.data
        kernels = [jit.address(call.kernel) for call in calls]
        self._table = np.array([[k, base + 8 * s] for k, s in zip(kernels, self.starts, strict=True)], np.int64)
        self._gate = parallel.aligned(2 * LINE // 8).view(np.int64)
        self._gate[:] = CLOSED
        self._kernel = jit.load(build, target or host())
        fields = {"first": 0, "last": 0, "table": self._table.ctypes.data, "gate": self._gate.ctypes.data}
        self._arguments = pack_arguments(FIELDS, fields | {"limit": threads - 1})
        self._address = self._arguments.ctypes.data
        self._part = (0, 0)
        self._range = slice(word_index(FIELDS, "first"), word_index(FIELDS, "last") + 1)

    def word(self, call: int, operand: str) -> int:
        """Return the index in `words` where a call takes the address of an operand from."""
        return self.starts[call] + self.calls[call].operands[operand]

    def run(self, first: int = 0, last: int | None = None) -> None:
        """Run the calls `first` to `last` - 1, by default all of them.

        All addresses must have been written to `words`. One run at a time.
        """
        part = first, len(self.calls) if last is None else last
        if part != self._part:
            self._arguments[self._range] = self._part = part
        if self.threads == 1:
            self._kernel(self._address, 1)
        else:
            parallel.launch(self._kernel, self._arguments, self, self.threads)


# -- the generated code of a sequence


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
