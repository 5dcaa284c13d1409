"""Calls of native kernels, prepared once: alone, or many in a sequence that is a single native call."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from mlhood.errors import KernelError
from mlhood.kernels import parallel
from mlhood.kernels.codegen import jit, sequence_kernel
from mlhood.kernels.codegen.arguments import pack_arguments, word_index
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.parallel import LINE


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

    Raises:
        KernelError: There is no such operand.
    """
    arrays |= {name: np.empty(size, np.uint8) for name, size in call.workspace.items()}
    words = call.words.copy()
    for name, array in arrays.items():
        if name not in call.operands:
            raise KernelError("no such operand", expected=", ".join(call.operands), got=name)
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
        self._gate[:] = sequence_kernel.CLOSED
        self._kernel = jit.load(sequence_kernel.build, target or host())
        fields = {"first": 0, "last": 0, "table": self._table.ctypes.data, "gate": self._gate.ctypes.data}
        self._arguments = pack_arguments(sequence_kernel.FIELDS, fields | {"limit": threads - 1})
        self._address = self._arguments.ctypes.data
        self._part = (0, 0)
        self._range = slice(word_index(sequence_kernel.FIELDS, "first"), word_index(sequence_kernel.FIELDS, "last") + 1)

    def replace(self, number: int, call: NativeCall) -> None:
        """Replace a call by another one of the same kernel; its addresses must be written again."""
        self.calls = (*self.calls[:number], call, *self.calls[number + 1 :])
        start = self.starts[number]
        self.words[start : start + call.words.size] = call.words

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
