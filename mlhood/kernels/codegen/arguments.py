"""The argument block of a native kernel: 64-bit words with named fields, which Python fills and the kernel reads."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, FunctionBuilder, Int, Pointer

COUNTERS = ("taken", "finished", "threads")  # the first words of every argument block; zero when a kernel is launched


def word_index(fields: Sequence[str], name: str) -> int:
    """Return the index of a field's word."""
    return len(COUNTERS) + fields.index(name)


def pack_arguments(fields: Sequence[str], values: dict[str, int], floats: dict[str, float] | None = None) -> np.ndarray:
    """Return an argument block: int64, the counters and then one word per field; a float32 occupies half a word."""
    words = np.zeros(len(COUNTERS) + len(fields), np.int64)
    for i, name in enumerate(fields, len(COUNTERS)):
        if floats and name in floats:
            words[i : i + 1].view(np.float32)[0] = floats[name]
        else:
            words[i] = values[name]
    return words


class Arguments:
    """A kernel under construction: its entry point `kernel(arguments, wait)`, and its argument block in native code.

    The block has the counters from which threads take tasks, and then the fields.

    Args:
        fields: Names of the fields.
        module: The module that gets the entry point; a new one by default.
    """

    def __init__(self, fields: Sequence[str], module: ir.Module | None = None) -> None:
        self.module = ir.Module() if module is None else module
        self.code = FunctionBuilder(self.module, "kernel", {"arguments": ADDRESS, "wait": INDEX})
        self.words = self.code.pointer("arguments", INDEX)
        self.indices = {name: index for index, name in enumerate([*COUNTERS, *fields])}

    def finished(self) -> str:
        """End the entry point, and return the module as LLVM IR."""
        self.code.ret()
        return str(self.module)

    def integer(self, name: str) -> Int:
        """Load an integer field."""
        return self.words.at(self.indices[name]).load_int()

    def pointer(self, name: str, element: Any = FLOAT) -> Pointer:
        """Load an address field."""
        word = self.words.at(self.indices[name]).load()
        return Pointer(self.code.builder, self.code.builder.inttoptr(word, ADDRESS), element)

    def float32(self, name: str) -> Any:
        """Load a float32 field."""
        return self.words.at(self.indices[name]).cast(FLOAT).load()

    @contextmanager
    def tasks(self, count: Int) -> Iterator[Int]:
        """Run the block for each task that this thread takes; the calling thread then waits until all are finished."""
        task = self.code.variable(INDEX, self._fetch_add("taken").value)
        with self.code.while_loop(lambda: Int(self.code.builder, task.get()) < count):
            yield Int(self.code.builder, task.get())
            self._fetch_add("finished")
            task.set(self._fetch_add("taken").value)
        self.wait_for(count * self.code.integer("wait"))

    def wait_for(self, count: Int) -> None:
        """Spin until `count` tasks are finished: those of an earlier stage, whose results are read next."""
        finished, builder = self.words.at(self.indices["finished"]), self.code.builder
        with self.code.while_loop(
            lambda: Int(builder, builder.load_atomic(finished.value, "acquire", 8, typ=INDEX)) < count
        ):
            pass

    def thread(self) -> Int:
        """Return the index of this thread: 0, 1, ... in order of arrival."""
        return self._fetch_add("threads")

    def _fetch_add(self, counter: str) -> Int:
        address, builder = self.words.at(self.indices[counter]), self.code.builder
        return Int(builder, builder.atomic_rmw("add", address.value, INDEX(1), "seq_cst"))
