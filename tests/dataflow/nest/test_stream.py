"""The address trace: the program's accesses in its order, none lost between chunks."""

from __future__ import annotations

from collections import Counter

import numpy as np
import pytest
from hypothesis import given, settings

from mlhood.dataflow.nest import NestError, gemm
from mlhood.dataflow.nest.stream import source

from .cases import scheduled


class RecordingArray:
    """An array that logs its reads and writes."""

    def __init__(self, shape, name, log):
        self.array, self.name, self.log = np.zeros(shape, np.float32), name, log

    def __getitem__(self, index):
        self.record(index, False)
        return self.array[index]

    def __setitem__(self, index, value):
        self.record(index, True)

    def record(self, index, write):
        index = index if isinstance(index, tuple) else (index,)
        self.log.append((self.name, int(np.ravel_multi_index(index, self.array.shape)), write))


def accesses_by_running(nest):
    scope, log = {}, []
    exec(nest.source(), scope)
    shapes = {access.array: access.shape for access in nest.accesses}
    shapes |= {pack.buffer.array: pack.shape for pack in nest.packs}
    scope["run"](*(RecordingArray(shapes[name], name, log) for name in nest.arrays))
    return log


def interpreted(nest, chunk):
    """Run the generator of the trace as Python."""
    scope, log, names = {}, [], list(nest.arrays)
    exec(source(nest), scope)
    arrays, elements, writes = np.empty(chunk, np.uint8), np.empty(chunk, np.int64), np.empty(chunk, bool)
    for count in scope["stream"](arrays, elements, writes):
        columns = arrays[:count].tolist(), elements[:count].tolist(), writes[:count].tolist()
        log += [(names[array], element, write) for array, element, write in zip(*columns, strict=True)]
    return log


@settings(max_examples=50)
@given(case=scheduled())
def test_the_trace_has_the_accesses_of_the_program(case):
    assert interpreted(case[1], 7) == accesses_by_running(case[1])


@settings(max_examples=50)
@given(case=scheduled(vectors=True))
def test_the_trace_agrees_with_the_counts(case):
    check_counts(case[1], interpreted(case[1], 1000))


def check_counts(nest, accesses):
    counts, traced = nest.count(), Counter((name, bool(write)) for name, _, write in accesses)
    assert {name: traced[name, False] for name in nest.arrays} == counts.reads
    assert {name: traced[name, True] for name in nest.arrays} == counts.writes


def test_compiled_chunks():
    tiled = gemm(9, 10, 11).tile("guard", i=4, k=4).pack("A", at="i_o")
    chunks = list(tiled.addresses(64))
    assert all(0 < len(chunk) <= 64 for chunk in chunks)
    accesses = [
        (chunk.names[array], element, write)
        for chunk in chunks
        for array, element, write in zip(chunk.array, chunk.element, chunk.write, strict=True)
    ]
    assert accesses == accesses_by_running(tiled)
    check_counts(tiled, accesses)


def test_byte_addresses_follow_the_layout():
    product = gemm(3, 5, 7)
    layout = product.layout()
    assert layout == {"A": 0, "B": 128, "C": 128 + 192}
    first = next(product.addresses())
    assert first.bytes(layout)[:4].tolist() == [320, 0, 128, 320]
    assert first.bytes(layout).max() == 320 + 4 * 14


def test_a_chunk_too_small_for_a_statement_is_rejected():
    with pytest.raises(NestError, match="chunk is too small"):
        next(gemm(2, 2, 2).addresses(8))
