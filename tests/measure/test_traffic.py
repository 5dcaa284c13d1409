"""Counting and tracing arrays, however NumPy and loops access them; the cache model."""

import gc

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.measure import traffic
from mlhood.measure.traffic import Counted, Trace, misses

DATA = np.arange(12.0, dtype=np.float32).reshape(3, 4)


@pytest.mark.parametrize(
    ("read", "count"),
    [
        (lambda a: a[1, 2], 1),
        (lambda a: a[1], 4),
        (lambda a: a[:, 1:3], 6),
        (lambda a: np.maximum(a, 0), 12),
        (lambda a: a.T, 12),
        (lambda a: a @ np.ones(4), 12),
        (lambda a: np.ones(3) @ a, 12),
        (lambda a: [row for row in a], 12),  # noqa: C416 - the loop is what is counted
        (lambda a: (a.shape, a.dtype, a.ndim, a.size, len(a)), 0),
    ],
)
def test_reads_are_counted_per_element(read, count):
    counted = Counted(DATA.copy())
    read(counted)
    assert (counted.reads, counted.writes) == (count, 0)


def test_writes_are_counted_and_done():
    counted = Counted(DATA.copy())
    counted[0, 0] = 7
    counted[1] = 5
    counted[2, 1:3] = [1, 2]
    assert (counted.reads, counted.writes) == (0, 7)
    np.testing.assert_array_equal(np.asarray(counted), [[7, 1, 2, 3], [5, 5, 5, 5], [8, 1, 2, 11]])


def test_a_slice_is_read_only():
    counted = Counted(DATA.copy())
    with pytest.raises(ValueError, match="read-only"):
        counted[0][0] = 99
    assert counted[0, 0] == 0


def test_a_loop_nest_is_counted():
    x, w, y = Counted(DATA), Counted(DATA), Counted(np.zeros((3, 3), np.float32))
    for i in range(3):
        for j in range(3):
            y[i, j] = sum(x[i, k] * w[j, k] for k in range(4))
    assert (x.reads, w.reads, y.writes, y.reads) == (36, 36, 9, 0)
    np.testing.assert_allclose(np.asarray(y), DATA @ DATA.T)


def traced(*shape):
    trace = Trace()
    return trace, trace.array(np.arange(np.prod(shape), dtype=np.float32).reshape(shape), "b")


@pytest.mark.parametrize(
    ("read", "order"),
    [
        (lambda b: [b[1, 2], b[0, 0], b[-1, -1]], [6, 0, 11]),
        (lambda b: [b[1][2], b[0][0]], [6, 0]),
        (lambda b: b[1] * 2, [4, 5, 6, 7]),
        (lambda b: np.float32(2) * b[1, :2], [4, 5]),
        (lambda b: np.zeros(3) + b[:, 1], [1, 5, 9]),
        (lambda b: b[:2, :2] @ b[1:, 2:], [0, 1, 4, 5, 6, 7, 10, 11]),
        (lambda b: b.T[1].sum(), [1, 5, 9]),
        (lambda b: b.astype(np.float64)[2, 0], [8]),
        (lambda b: b.copy().T[0, 1], [4]),
        (lambda b: [row[0] for row in b], [0, 4, 8]),
        (lambda b: [element for row in b[1:] for element in row], [4, 5, 6, 7, 8, 9, 10, 11]),
        (lambda b: (b.shape, b.T.shape, len(b), b[1], b.size, b.ndim, b.dtype), []),
    ],
)
def test_accesses_are_recorded_in_order(read, order):
    trace, b = traced(3, 4)
    read(b)
    assert trace.addresses().tolist() == order
    assert trace.whole == set()


@pytest.mark.parametrize(
    "read", [lambda b: b @ np.ones(4), lambda b: np.dot(np.ones(3), b), lambda b: b[:] + 1, lambda b: b.sum(), np.array]
)
def test_reads_of_the_whole_array_are_noted(read):
    trace, b = traced(3, 4)
    read(b)
    assert trace.whole == {"b"}
    assert trace.addresses().tolist()[:12] == list(range(12))


def test_results_are_those_of_numpy():
    _, b = traced(3, 4)
    array = np.array(b)
    np.testing.assert_array_equal(b[1:, :3] @ b[:, 1:], array[1:, :3] @ array[:, 1:])
    np.testing.assert_array_equal(2 - b[0] / (b[1] + 1), 2 - array[0] / (array[1] + 1))
    np.testing.assert_array_equal(np.outer(b[:, 0], b[1]), np.outer(array[:, 0], array[1]))
    np.testing.assert_array_equal(b.T.astype(np.float64)[2], array[:, 2].astype(np.float64))


def test_a_write_is_recorded_and_done():
    trace, b = traced(3, 4)
    b[0, 1] = 7
    b[2] = 5
    assert trace.addresses().tolist() == [1, 8, 9, 10, 11]
    b[1] += np.float32(1)
    b[1][3] = 0
    np.testing.assert_array_equal(np.asarray(b), [[0, 7, 2, 3], [5, 6, 7, 0], [5, 5, 5, 5]])
    other = np.zeros(4, np.float32)
    other += b[0]
    assert other.tolist() == [0, 7, 2, 3]


def test_arrays_do_not_share_a_cache_line():
    trace = Trace()
    first, second = (trace.array(np.zeros(shape, np.float32)) for shape in [(5, 13), (2, 2)])
    first[4, 12], second[0, 0]
    assert trace.addresses().tolist() == [64, 2 * Trace.ALIGNMENT]


@given(st.lists(st.integers(0, 60), max_size=80), st.integers(1, 6), st.sampled_from([1, 4, 8]))
def test_a_miss_has_a_reuse_distance_of_at_least_the_capacity(addresses, lines, line):
    tags = [address // line for address in addresses]
    expected = 0
    for i, tag in enumerate(tags):
        uses = [j for j in range(i) if tags[j] == tag]
        distinct = set(tags[uses[-1] + 1 : i]) if uses else set()
        expected += not uses or len(distinct) >= lines
    assert misses(np.array(addresses, np.int64), lines, line) == expected


def test_an_instrumented_array_shows_neither_data_nor_record():
    """A check believes what it records about a function that has nothing but the array."""
    counted, (_, b) = Counted(DATA.copy()), traced(3, 4)
    shown = [name for name in dir(counted) if not name.startswith("_")]
    assert sorted(shown) == ["T", "dtype", "ndim", "reads", "shape", "size", "writes"]
    with pytest.raises(AttributeError):
        counted.reads = 0
    for array in (counted, b):
        assert not hasattr(array, "__dict__")
        with pytest.raises(AttributeError):
            array.array = DATA


def test_the_state_of_an_array_goes_with_it():
    before = len(traffic.states)
    counted = Counted(DATA.copy())
    assert len(traffic.states) == before + 1
    del counted
    gc.collect()
    assert len(traffic.states) == before
