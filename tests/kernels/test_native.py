"""Kernels in a sequence: order, threads, and the same addresses for many runs."""

import threading

import numpy as np
import pytest

from mlhood.kernels import native, parallel, product
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64, PORTABLE
from mlhood.kernels.native import KernelSequence, NativeCall
from mlhood.kernels.product import ProductSizes

SIZE = 33


def chain(length, threads):
    """Return a sequence that multiplies x by `length` matrices, the arrays between, and the expected result."""
    draw = np.random.default_rng(length)
    factors = [draw.standard_normal((SIZE, SIZE), np.float32) / 6 for _ in range(length)]
    arrays = [np.zeros((SIZE, SIZE), np.float32) for _ in range(length + 1)]
    arrays[0][...] = draw.standard_normal((SIZE, SIZE))
    calls = [product.prepare(ProductSizes(SIZE, SIZE, SIZE), factor, threads=threads) for factor in factors]
    sequence = KernelSequence(calls, threads)
    for i in range(length):
        sequence.words[sequence.word(i, "a")] = arrays[i].ctypes.data
        sequence.words[sequence.word(i, "c")] = arrays[i + 1].ctypes.data
    expected = arrays[0]
    for factor in factors:
        expected = expected @ factor
    return sequence, arrays, expected


@pytest.mark.parametrize("threads", [1, 2, 3])
def test_kernels_run_in_order_in_every_run(threads):
    sequence, arrays, expected = chain(12, threads)
    results = []
    for _ in range(30):
        arrays[-1][...] = np.nan
        sequence.run()
        results.append(arrays[-1].copy())
    np.testing.assert_allclose(results[0], expected, rtol=1e-4, atol=1e-4)
    assert all((result == results[0]).all() for result in results)
    single, others, _ = chain(12, 1)
    single.run()
    np.testing.assert_array_equal(others[-1], results[0])


def test_a_part_of_a_sequence_runs_alone():
    sequence, arrays, _ = chain(4, 2)
    sequence.run(0, 2)
    assert arrays[2].any()
    assert not arrays[3].any()
    sequence.run(2, 4)
    assert arrays[4].any()


def test_sequences_of_several_threads_do_not_disturb_each_other():
    """Helpers are shared: one that comes too late for its run finds the gate closed."""
    pairs = [chain(6, 2) for _ in range(3)]

    def work(sequence):
        for _ in range(40):
            sequence.run()

    workers = [threading.Thread(target=work, args=(sequence,)) for sequence, _, _ in pairs]
    for worker in workers:
        worker.start()
    for worker in workers:
        worker.join()
    for _, arrays, expected in pairs:
        np.testing.assert_allclose(arrays[-1], expected, rtol=1e-4, atol=1e-4)


def test_counters_of_a_call_do_not_share_a_cache_line_with_another():
    call = product.prepare(ProductSizes(2, 2, 2), np.eye(2, dtype=np.float32))
    sequence = KernelSequence([call, call])
    assert all(start * 8 % parallel.LINE == 0 for start in sequence.starts)
    assert isinstance(sequence.calls[0], NativeCall)


@pytest.mark.parametrize("target", [AARCH64, PORTABLE], ids=lambda target: target.name)
def test_the_code_of_the_sequence_compiles_for_other_processors(target):
    assert "kernel" in jit.compile_ir(native.build(target), target, assembly=True)
