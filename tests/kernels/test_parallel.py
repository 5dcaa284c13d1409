"""Threads: the same result with any number of them, from several callers, and after a fork."""

import os
import subprocess
import sys
import threading

import numpy as np
import pytest

from mlhood.kernels import GEMM
from mlhood.kernels.parallel import parallel_for


def test_several_callers_at_once():
    rng = np.random.default_rng(0)
    a, b = rng.standard_normal((150, 90), np.float32), rng.standard_normal((90, 200), np.float32)
    expected, wrong = GEMM["vectorised"](a, b, threads=1), []

    def work() -> None:
        for _ in range(50):
            if not np.array_equal(GEMM["vectorised"](a, b, threads=3), expected):
                wrong.append(threading.current_thread())

    callers = [threading.Thread(target=work) for _ in range(4)]
    for caller in callers:
        caller.start()
    for caller in callers:
        caller.join()
    assert not wrong


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

warnings.simplefilter("ignore", DeprecationWarning)  # that a process with threads forks is what is tested
one = np.ones((64, 64), np.float32)
GEMM["vectorised"](one, one, threads=2)
child = os.fork()
if child == 0:
    os._exit(0 if (GEMM["vectorised"](one, one, threads=2) == 64).all() else 1)
raise SystemExit(os.waitpid(child, 0)[1])
"""


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_starts_threads_of_its_own():
    # in a process of its own: other libraries in this one, such as JAX, object to forks
    subprocess.run([sys.executable, "-c", FORKING], check=True, timeout=120)
