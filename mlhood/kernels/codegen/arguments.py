"""A plan: what a native kernel is told about one call, as 64-bit integers with names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
from llvmlite import ir

from mlhood.kernels.codegen.ir_builder import ADDRESS, FLOAT, INDEX, Code, Int, Pointer

COUNTERS = ("taken", "finished", "threads")  # the first words of every argument block


def place_of(fields: Sequence[str], name: str) -> int:
    """Return the number of a field's word."""
    return len(COUNTERS) + fields.index(name)


def fill(fields: Sequence[str], values: dict[str, int], floats: dict[str, float] | None = None) -> np.ndarray:
    """Return the plan: int64, one word a field, the first ones the counters; a float32 takes half a word."""
    words = np.zeros(len(COUNTERS) + len(fields), np.int64)
    for name in fields:
        place = place_of(fields, name)
        if floats and name in floats:
            words[place : place + 1].view(np.float32)[0] = floats[name]
        else:
            words[place] = values[name]
    return words


def kernel(module: ir.Module) -> Code:
    """Return the function that Python calls: `kernel(plan, wait)`."""
    return Code(module, "kernel", {"plan": ADDRESS, "wait": INDEX})


class Plan:
    """The plan as the native code sees it; every field is read once, when the kernel starts."""

    def __init__(self, code: Code, fields: Sequence[str]) -> None:
        self.code = code
        self.words = code.pointer("plan", INDEX)
        self.places = {name: place for place, name in enumerate([*COUNTERS, *fields])}

    def integer(self, name: str) -> Int:
        """Return a field that is a number."""
        return self.words.at(self.places[name]).integer()

    def pointer(self, name: str, element: Any = FLOAT) -> Pointer:
        """Return a field that is an address."""
        word = self.words.at(self.places[name]).load()
        return Pointer(self.code.builder, self.code.builder.inttoptr(word, ADDRESS), element)

    def number(self, name: str) -> Any:
        """Return a field that is a float32."""
        return self.words.at(self.places[name]).of(FLOAT).load()

    @contextmanager
    def tasks(self, count: Int) -> Iterator[Int]:
        """Run the block for each task that this thread gets; the caller then waits until all are finished."""
        task = self.code.variable(INDEX, self._next("taken").value)
        with self.code.whilst(lambda: Int(self.code.builder, task.get()) < count):
            yield Int(self.code.builder, task.get())
            self._next("finished")
            task.set(self._next("taken").value)
        self.wait_for(count * self.code.integer("wait"))

    def wait_for(self, count: Int) -> None:
        """Wait until that many tasks are finished: those before a stage that builds on them."""
        finished = self.words.at(self.places["finished"])
        with self.code.whilst(lambda: self._read(finished) < count):
            pass

    def _next(self, counter: str) -> Int:
        place = self.words.at(self.places[counter])
        return Int(self.code.builder, self.code.builder.atomic_rmw("add", place.value, INDEX(1), "seq_cst"))

    def _read(self, place: Pointer) -> Int:
        builder = self.code.builder
        return Int(builder, builder.load_atomic(place.value, "acquire", 8, typ=INDEX))

    def thread(self) -> Int:
        """Return this thread's number: 0, 1, ... in the order in which they arrive."""
        return self._next("threads")
