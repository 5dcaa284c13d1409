"""The bytes that NumPy's loops move: what is counted, and that counting changes nothing."""

import numpy as np
import pytest

from mlhood.jaxlab.operators.passes import bytes_moved

N = 24  # elements of x, of 4 bytes each
COUNTED = {  # what a function of x [4, 6] reads and writes, in elements
    "two loops": (lambda x: x * 2 + 1, 4 * N),
    "in place": (lambda x: np.add(x, 1, out=x), 2 * N),
    "broadcast": (lambda x: x + x[0], 2 * N + 6),
    "a slice": (lambda x: -x[:, ::2], N),
    "a reduction": (lambda x: x.sum(1), N + 4),
    "a number": (lambda x: np.max(x), N + 1),
    "a product": (lambda x: x @ x.T, 2 * N + 16),
    "padding": (lambda x: np.pad(x, 1), N + 6 * 8),
    "a copy by reshape": (lambda x: x.T.reshape(-1), 2 * N),
    "views": (lambda x: np.moveaxis(x.reshape(2, 12), 0, 1)[None], 0),
    "windows": (lambda x: np.lib.stride_tricks.sliding_window_view(x, 3, 1).max(-1), 4 * 4 * 4),
}


@pytest.mark.parametrize("name", COUNTED)
def test_each_loop_counts_what_it_reads_and_writes(name):
    function, elements = COUNTED[name]
    assert bytes_moved(function, np.ones((4, 6), np.float32)) == 4 * elements


@pytest.mark.parametrize("name", COUNTED)
def test_counting_changes_neither_values_nor_types(name):
    function, seen = COUNTED[name][0], []
    x = np.arange(24, dtype=np.float32).reshape(4, 6)
    bytes_moved(lambda x: seen.append(np.asarray(function(x))), x.copy())
    want = np.asarray(function(x.copy()))
    assert seen[0].dtype == want.dtype
    np.testing.assert_array_equal(seen[0], want)
