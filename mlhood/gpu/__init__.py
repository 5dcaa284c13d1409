"""CUDA kernels in Python without a GPU: what they compute, and what memory would have to serve.

In: a kernel as Numba's CUDA target takes it, and arrays. Out: a `Report` of requests, sectors, bank conflicts, races
(`simulator`, `report`); times that a roofline predicts for GPUs in a table (`cost`), and times on a real one
(`on_device`). `ladder` has the kernels of the course, `ptx` the way from LLVM IR to a GPU's assembly.

Whoever imports `numba.cuda` first decides what it is. This package selects Numba's simulator, which runs each thread of
a kernel as a Python function; a process that wants the GPU imports `numba.cuda` before this package.
"""

import sys

from numba.core import config

if "numba.cuda" not in sys.modules:
    config.ENABLE_CUDASIM = 1  # pyright: ignore[reportAttributeAccessIssue]
