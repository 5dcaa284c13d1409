"""Threads: the same result with any number of them, from several calling threads, and after a fork."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from mlhood.kernels import GEMM
from mlhood.kernels.parallel import parallel_for
from tests.waiting import PATIENCE


def test_several_callers_at_once():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((150, 90), np.float32), rng.standard_normal((90, 200), np.float32)
    expected, failures = GEMM["vectorised"](a, b, threads=1), []

    def work() -> None:
        for _ in range(50):
            if not np.array_equal(GEMM["vectorised"](a, b, threads=3), expected):
                failures.append(threading.current_thread())

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not failures


def test_parts_cover_everything_once():
    for size in (0, 1, 5, 17):
        seen = np.zeros(size, int)

        def count(first: int, stop: int, seen: np.ndarray = seen) -> None:
            seen[first:stop] += 1

        parallel_for(count, size, 4)
        assert (seen == 1).all()


FORKING = """
import os, warnings
import numpy as np
from mlhood.kernels import GEMM

warnings.simplefilter("ignore", DeprecationWarning)  # the test forks a process with threads
ones = np.ones((64, 64), np.float32)
GEMM["vectorised"](ones, ones, threads=2)
child = os.fork()
if child == 0:
    os._exit(0 if (GEMM["vectorised"](ones, ones, threads=2) == 64).all() else 1)
raise SystemExit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_forked_child_starts_its_own_threads():
    # in a separate process: other libraries in this one, such as JAX, do not support forks
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=PATIENCE)
