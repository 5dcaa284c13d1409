"""Every rung of the matrix product agrees with NumPy in float64, for any shape, strides and threads."""

import math

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.errors import KernelError
from mlhood.kernels import GEMM, parallel, vectorised
from mlhood.kernels.codegen.microkernel import cheapest
from mlhood.kernels.codegen.target import Target, available
from tests.kernels.guards import use_threads

SIZES = st.one_of(st.integers(0, 40), st.sampled_from([63, 64, 65, 100, 513, 530]))
LAYOUTS = ("plain", "transposed", "every other", "reversed", "broadcast")


def matrix(rng: np.random.Generator, rows: int, columns: int, layout: str) -> np.ndarray:
    if layout == "transposed":
        return rng.standard_normal((columns, rows), np.float32).T
    if layout == "every other":
        return rng.standard_normal((2 * rows, 2 * columns), np.float32)[::2, ::2]
    if layout == "reversed":
        return rng.standard_normal((rows, columns), np.float32)[::-1, ::-1]
    if layout == "broadcast":
        return np.broadcast_to(rng.standard_normal((1, columns), np.float32), (rows, columns))
    return rng.standard_normal((rows, columns), np.float32)


def assert_close(c: np.ndarray, a: np.ndarray, b: np.ndarray) -> None:
    exact = a.astype(np.float64) @ b.astype(np.float64)
    assert c.dtype == np.float32
    assert c.shape == exact.shape
    bound = 1e-6 * (1 + a.shape[1]) * (1 + np.abs(exact).max(initial=0))
    assert np.abs(c - exact).max(initial=0) <= bound


@pytest.mark.parametrize("rung", GEMM)
@settings(max_examples=25)
@given(
    m=SIZES,
    k=SIZES,
    n=SIZES,
    layouts=st.tuples(st.sampled_from(LAYOUTS), st.sampled_from(LAYOUTS)),
    threads=st.sampled_from([1, 2, 3]),
)
def test_a_rung_agrees_with_numpy(rung, m, k, n, layouts, threads):
    rng = np.random.default_rng(m * 10007 + k * 101 + n)
    a, b = matrix(rng, m, k, layouts[0]), matrix(rng, k, n, layouts[1])
    assert_close(GEMM[rung](a, b, threads=threads), a, b)


@settings(max_examples=30)
@given(
    m=st.sampled_from([1, 5, 14, 47, 70]), k=st.integers(1, 70), n=st.integers(1, 150), threads=st.sampled_from([1, 2])
)
def test_the_generated_kernel_agrees_on_every_processor(generator_target, m, k, n, threads):
    rng = np.random.default_rng(m + k + n)
    for left in ("plain", "transposed"):
        for right in ("plain", "transposed"):
            a, b = matrix(rng, m, k, left), matrix(rng, k, n, right)
            assert_close(vectorised.multiply(a, b, threads, generator_target), a, b)


@pytest.fixture(scope="module", params=available(), ids=lambda target: target.name)
def generator_target(request) -> Target:
    return request.param


def test_several_rounds_over_columns_and_depth(monkeypatch):
    monkeypatch.setattr(vectorised, "KC", 20)
    monkeypatch.setattr(vectorised, "NC", 70)
    rng = np.random.default_rng(0)
    a, b = matrix(rng, 50, 90, "plain"), matrix(rng, 90, 300, "plain")
    for threads in (1, 2, 5):
        assert_close(vectorised.multiply(a, b, threads), a, b)


@pytest.mark.parametrize("rung", GEMM)
def test_nan_and_infinity_propagate(rung):
    a, b = np.ones((5, 6), np.float32), np.ones((6, 40), np.float32)
    a[2, 3], b[4, 7] = np.nan, np.inf
    c = GEMM[rung](a, b, threads=1)
    assert np.isnan(c[2]).all()
    assert np.isinf(c[[0, 1, 3, 4], 7]).all()
    assert np.isfinite(np.delete(np.delete(c, 7, 1), 2, 0)).all()


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((2, 3), np.float32), np.zeros((2, 3), np.float32), "do not conform"),
        (np.zeros((2, 3)), np.zeros((3, 2), np.float32), "a is not a matrix of float32"),
        (np.zeros((2, 3), np.float32), np.zeros(3, np.float32), "b is not a matrix"),
        ([[1.0]], np.zeros((1, 1), np.float32), "a is not a matrix"),
    ],
)
def test_invalid_operands_are_refused(a, b, message):
    for multiply in GEMM.values():
        with pytest.raises(KernelError, match=message):
            multiply(a, b)


@pytest.mark.parametrize("threads", [0, -1, 1.5, "2"])
def test_invalid_numbers_of_threads_are_refused(threads):
    ones = np.ones((1, 1), np.float32)
    for rung in GEMM.values():
        with pytest.raises(KernelError, match="threads"):
            rung(ones, ones, threads=threads)


def test_threads_as_a_setting():
    default = parallel.threads()
    with use_threads(7):
        assert parallel.threads() == 7
        with use_threads(1):
            assert parallel.threads() == 1
        assert parallel.threads() == 7
    assert parallel.threads() == default >= 1


def test_tiles_fit_into_the_registers(target):
    for rows, columns in ((1, 1), (7, 100), (1000, 1000)):
        tile = cheapest(target, rows, columns)
        assert tile.registers <= target.registers
        assert tile.rows <= rows
        assert tile.lanes == target.lanes
        assert math.isfinite(tile.cycles)
