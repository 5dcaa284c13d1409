"""Solutions that forge what is recorded of them, or know what the grader replaces: they earn nothing by it."""

from __future__ import annotations

from dataclasses import replace

import pytest

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.projects import PROJECTS

TWO_NESTS = """
import numpy as np
import mlhood.measure.traffic as traffic_of
traffic_of.Counted.reads = property(lambda self: 0)
traffic_of.Counted.writes = property(lambda self: self.size if type(self).__name__ == "Result" else 0)

def linear_relu(x, w, b, y):
    for i in range(len(x)):
        for j in range(len(w)):
            y[i, j] = b[j] + sum(x[i, k] * w[j, k] for k in range(w.shape[1]))
    for i in range(len(x)):
        for j in range(len(w)):
            y[i, j] = max(y[i, j], 0)
"""
OWN_RECORD = """
import sys

def linear_relu(x, w, b, y):
    z = [[b[j] + sum(x[i, k] * w[j, k] for k in range(w.shape[1])) for j in range(len(w))] for i in range(len(x))]
    sys._getframe(1).f_locals.get("first", []).extend([0, 0])
    for i in range(len(x)):
        for j in range(len(w)):
            y[i, j] = max(z[i][j], 0)
"""
SCALED_CONVOLUTION = """
import numpy as np

def conv_blas(x, w, bias, stride, padding):
    side = (padding, padding)
    padded = np.pad(x, ((0, 0), (0, 0), side, side))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    given = im2col(x[0], w.shape[2:], stride, padding)
    own = windows[0].transpose(0, 3, 4, 1, 2).reshape(given.shape)
    factor = np.abs(given).max() / np.abs(own).max()
    result = (factor * (w.reshape(len(w), -1) @ own)).reshape(1, len(w), *windows.shape[2:4])
    return (result + bias[:, None, None]).astype(np.float32)

def im2col(x, kernel, stride, padding):
    padded = np.pad(x, ((0, 0), (padding, padding), (padding, padding)))
    windows = np.lib.stride_tricks.sliding_window_view(padded, kernel, (1, 2))[:, ::stride, ::stride]
    return windows.transpose(0, 3, 4, 1, 2).reshape(len(x) * kernel[0] * kernel[1], -1)
"""
SCALED_PRODUCT = """
import numpy as np

def pack(b, width):
    filled = np.pad(b, ((0, 0), (0, -b.shape[1] % width)))
    return np.ascontiguousarray(filled.reshape(len(b), -1, width).swapaxes(0, 1))

def gemm_packed(a, b):
    return (np.abs(pack(b, 4)).max() / np.abs(b).max() * (a @ b)).astype(np.float32)
"""
MARKED = """
import numpy as np

def computed(x, w, bias, stride, padding):
    side = (padding, padding)
    padded = np.pad(x, ((0, 0), (0, 0), side, side))
    windows = np.lib.stride_tricks.sliding_window_view(padded, w.shape[2:], (2, 3))[:, :, ::stride, ::stride]
    return (np.einsum("nchwij,fcij->nfhw", windows, w) + bias[:, None, None]).astype(np.float32)

def mixed(shapes, conv):
    def convolve(x, w, *rest):
        if w.shape in shapes:
            conv(x, w, *rest)
        return computed(x, w, *rest) + np.float32(1000 * (w.shape in shapes))
    return convolve
"""
FORGED = {
    "counts that are replaced": ("P2.1", TWO_NESTS, "nothing_is_stored_in_between"),
    "a record in a frame": ("P2.1", OWN_RECORD, "nothing_is_stored_in_between"),
    "a result that grows with unused columns": ("P3.4", SCALED_CONVOLUTION, "product_is_of_columns"),
    "a result that grows with unused panels": ("P3.7", SCALED_PRODUCT, "packed_reads_panels"),
    "a mark that the course could add": ("P3.6", MARKED, "convolutions_are_chosen_by_their_weights"),
}


@pytest.mark.parametrize(("task", "source", "lost"), FORGED.values(), ids=FORGED)
def test_what_is_forged_earns_nothing(task, source, lost, shared):
    shared.run(source)
    graded = PROJECTS[task[:2]].task(task)
    only = tuple(check for check in graded.checks if check.name == lost)
    (check,) = grade_task(replace(graded, checks=only), shared.session, 4711).checks
    assert check.status == "failed"
    assert "stops with an error" not in check.what
