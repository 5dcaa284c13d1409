"""Threads: set and restored where possible; a new process where not."""

import contextlib
import subprocess
import sys

import numpy as np
import pytest
import torch
from threadpoolctl import threadpool_info

from mlhood.errors import MeasureError
from mlhood.kernels import parallel
from mlhood.measure import compare, environment, session_options, threads
from tests.kernels.guards import use_threads

JAX_THREADS = """
import os, sys
import jax.numpy as jnp
jnp.ones((8, 8)).block_until_ready()
names = [open(f"/proc/self/task/{task}/comm").read().strip() for task in os.listdir("/proc/self/task")]
print(names.count("tf_XLAEigen"))
"""


def blas():
    return [pool["num_threads"] for pool in threadpool_info() if pool["user_api"] == "blas"]


@pytest.mark.parametrize("count", [1, 2])
def test_loaded_libraries_are_set_and_restored(count):
    before = blas(), torch.get_num_threads()
    with threads(count):
        assert set(blas()) == {count}
        assert torch.get_num_threads() == count
        np.ones((8, 8)) @ np.ones((8, 8))
    assert (blas(), torch.get_num_threads()) == before


def test_threads_nest_and_are_restored_after_an_error():
    before = blas(), torch.get_num_threads()
    with contextlib.suppress(KeyError), threads(2), threads(1) as inner:
        inner.apply()
        inner.apply()
        raise KeyError
    assert (blas(), torch.get_num_threads()) == before


def test_numba_is_set():
    numba = pytest.importorskip("numba")
    before = numba.get_num_threads()
    with threads(1):
        assert numba.get_num_threads() == 1
    assert numba.get_num_threads() == before
    torch_before = torch.get_num_threads()
    with pytest.raises(MeasureError, match="Numba was started with fewer"), threads(10_000):
        pass
    assert torch.get_num_threads() == torch_before


def test_our_kernels_are_set():
    with use_threads(5):
        with threads(2):
            assert parallel.threads() == 2
            with threads(1) as inner:
                inner.apply()
                assert parallel.threads() == 1
            assert parallel.threads() == 2
        assert parallel.threads() == 5


def test_a_comparison_sets_our_kernels():
    counts = []
    with use_threads(5):
        compare({"kernel": lambda: counts.append(parallel.threads())}, threads=2, check=False, shortest=0)
    assert set(counts) == {2}


@pytest.mark.parametrize("count", [0, -1, 1.0, True, "2"])
def test_invalid_numbers_of_threads_are_refused(count):
    with pytest.raises(MeasureError, match="number of threads"), threads(count):
        pass
    with pytest.raises(MeasureError, match="number of threads"):
        environment(count)
    with pytest.raises(MeasureError, match="number of threads"):
        session_options(count)


def test_sessions_use_the_threads_and_stop_spinning():
    options = session_options(2)
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (2, 1)
    assert options.get_session_config_entry("session.force_spinning_stop") == "1"


def test_libraries_that_choose_their_threads_are_noted(monkeypatch):
    monkeypatch.setitem(sys.modules, "jax", object())
    monkeypatch.setitem(sys.modules, "onnxruntime", object())
    monkeypatch.delenv("NPROC", raising=False)
    monkeypatch.delenv("PJRT_NPROC", raising=False)
    with threads(1) as fixed:
        assert ["ONNX Runtime" in fixed.notes()[0], "JAX" in fixed.notes()[1]] == [True, True]
        monkeypatch.setenv("PJRT_NPROC", "1")
        assert not any("JAX" in note for note in fixed.notes())


def test_the_environment_extends_the_base():
    variables = environment(3, {"PATH": "x", "OMP_NUM_THREADS": "8"})
    assert (variables["PATH"], variables["OMP_NUM_THREADS"], variables["NUMBA_NUM_THREADS"]) == ("x", "3", "3")


@pytest.mark.skipif(sys.platform != "linux", reason="counts threads under /proc")
@pytest.mark.parametrize("count", [1, 3])
def test_jax_uses_the_threads_of_the_environment(count):
    result = subprocess.run(
        [sys.executable, "-c", JAX_THREADS], env=environment(count), capture_output=True, text=True, check=True
    )
    assert int(result.stdout) == count
