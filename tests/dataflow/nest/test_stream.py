"""The stream of accesses: those of the program, in its order, and none of them lost between chunks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from mlhood.dataflow.nest import NestError, gemm
from mlhood.dataflow.nest.stream import source

from .cases import scheduled


class Recorded:
    """An array that writes down who reads and writes it."""

    def __init__(self, shape, name, log):
        self.array, self.name, self.log = np.zeros(shape, np.float32), name, log

    def __getitem__(self, place):
        self.note(place, False)
        return self.array[place]

    def __setitem__(self, place, value):
        self.note(place, True)

    def note(self, place, write):
        place = place if isinstance(place, tuple) else (place,)
        self.log.append((self.name, int(np.ravel_multi_index(place, self.array.shape)), write))


def by_running(made):
    scope, log = {}, []
    exec(made.source(), scope)
    shapes = {one.array: one.shape for one in made.accesses} | {one.buffer.array: one.shape for one in made.packs}
    scope["run"](*(Recorded(shapes[name], name, log) for name in made.arrays))
    return log


def interpreted(made, chunk):
    scope, log, names = {}, [], list(made.arrays)
    exec(source(made), scope)
    array, element, write = np.empty(chunk, np.uint8), np.empty(chunk, np.int64), np.empty(chunk, bool)
    for count in scope["stream"](array, element, write):
        columns = array[:count].tolist(), element[:count].tolist(), write[:count].tolist()
        log += [(names[one], place, kind) for one, place, kind in zip(*columns, strict=True)]
    return log


@settings(max_examples=50, deadline=None)
@given(case=scheduled())
def test_the_stream_is_what_the_program_does(case):
    assert interpreted(case[1], 7) == by_running(case[1])


@settings(max_examples=50, deadline=None)
@given(case=scheduled(vectors=True))
def test_the_stream_is_what_is_counted(case):
    counts, told = case[1].count(), Counter((name, write) for name, _, write in interpreted(case[1], 1000))
    assert {name: told[name, False] for name in case[1].arrays} == counts.reads
    assert {name: told[name, True] for name in case[1].arrays} == counts.writes


def test_compiled_chunks():
    made = gemm(9, 10, 11).tile("guard", i=4, k=4).pack("A", at="i_o")
    chunks = list(made.addresses(64))
    assert all(0 < len(chunk) <= 64 for chunk in chunks)
    found = [
        (chunk.names[array], element, write)
        for chunk in chunks
        for array, element, write in zip(chunk.array, chunk.element, chunk.write, strict=True)
    ]
    assert found == by_running(made)
    counts, told = made.count(), Counter((name, bool(write)) for name, _, write in found)
    assert {name: told[name, False] for name in made.arrays} == counts.reads
    assert {name: told[name, True] for name in made.arrays} == counts.writes


def test_bytes_lie_where_the_layout_says():
    made = gemm(3, 5, 7)
    layout = made.layout()
    assert layout == {"A": 0, "B": 128, "C": 128 + 192}
    first = next(made.addresses())
    assert first.bytes(layout)[:4].tolist() == [320, 0, 128, 320]
    assert first.bytes(layout).max() == 320 + 4 * 14


def test_a_chunk_holds_a_statement():
    with pytest.raises(NestError, match="chunk is too small"):
        next(gemm(2, 2, 2).addresses(8))
