"""Arrays that count: every way in which NumPy and loops read them."""

import numpy as np
import pytest

from mlhood.measure.traffic import Counted

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
def test_reads_are_counted_by_the_element(read, count):
    counted = Counted(DATA.copy())
    read(counted)
    assert (counted.reads, counted.writes) == (count, 0)


def test_writes_are_counted_and_done():
    counted = Counted(DATA.copy(), "y")
    counted[0, 0] = 7
    counted[1] = 5
    counted[2, 1:3] = [1, 2]
    assert (counted.reads, counted.writes) == (0, 7)
    np.testing.assert_array_equal(counted.array, [[7, 1, 2, 3], [5, 5, 5, 5], [8, 1, 2, 11]])


def test_what_was_read_cannot_be_written_through():
    counted = Counted(DATA.copy())
    with pytest.raises(ValueError, match="read-only"):
        counted[0][0] = 99
    assert counted.array[0, 0] == 0


def test_a_loop_nest_counts_what_it_says():
    x, w, y = Counted(DATA), Counted(DATA), Counted(np.zeros((3, 3), np.float32))
    for i in range(3):
        for j in range(3):
            y[i, j] = sum(x[i, k] * w[j, k] for k in range(4))
    assert (x.reads, w.reads, y.writes, y.reads) == (36, 36, 9, 0)
    np.testing.assert_allclose(y.array, DATA @ DATA.T)
