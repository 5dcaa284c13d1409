"""Kernels in the simulator: what they compute, what is counted, and what is reported as wrong."""

from __future__ import annotations

import re

import numpy as np
import pytest
from numba import float32, float64

from mlhood.errors import GPUError
from mlhood.gpu import cost
from mlhood.gpu.ladder import RUNGS, TILE
from mlhood.gpu.report import SECTOR, WARP, Report
from mlhood.gpu.simulator import cuda, launch

ODD = [(13, 7, 19), (17, 33, 5), (1, 1, 1)]


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(7).standard_normal(shape).astype(np.float32)


def product(rung: str, m: int, k: int, n: int) -> tuple[np.ndarray, np.ndarray, Report]:
    """Return what a rung computes, what it should, and the report."""
    a, b, c = draw(m, k), draw(k, n), np.full((m, n), np.nan, np.float32)
    report = launch(RUNGS[rung].kernel, *RUNGS[rung].grid(m, n), a, b, c)
    return c, a @ b, report


@pytest.fixture(scope="module")
def of_64() -> dict[str, Report]:
    return {rung: product(rung, 64, 64, 64)[2] for rung in RUNGS}


@pytest.mark.parametrize(("rung", "sectors"), [("naive", 141_312), ("coalesced", 33_280), ("tiled", 4_608)])
def test_sectors_of_a_product_of_64(rung, sectors, of_64):
    assert of_64[rung].sectors == sectors


@pytest.mark.parametrize("rung", RUNGS)
def test_the_formulas_say_what_is_counted(rung, of_64):
    work = cost.work(rung, 64)
    assert (work.flops, work.bytes, work.passes) == (2 * 64**3, of_64[rung].bytes, of_64[rung].passes)
    assert of_64[rung].conflicts == 0
    assert of_64[rung].problems == ()
    assert of_64[rung].barriers == {"tiled": 8, "registers": 8}.get(rung, 0)


def expected_sectors(m: int, k: int, n: int, *, rows_along_x: bool) -> int:
    """Sectors of one thread per element, by the definition: for each warp and each request."""
    total = 0
    for top in range(0, m, TILE):
        for left in range(0, n, TILE):
            for first in range(0, TILE * TILE, WARP):
                numbers = np.arange(first, first + WARP)
                x, y = numbers % TILE, numbers // TILE
                rows, columns = (top + x, left + y) if rows_along_x else (top + y, left + x)
                inside = (rows < m) & (columns < n)
                rows, columns = rows[inside], columns[inside]
                for step in range(k):
                    total += len(set((rows * k + step) * 4 // SECTOR)) + len(set((step * n + columns) * 4 // SECTOR))
                total += len(set((rows * n + columns) * 4 // SECTOR))
    return total


@pytest.mark.parametrize("sizes", ODD)
@pytest.mark.parametrize("rung", ["naive", "coalesced"])
def test_sectors_of_odd_sizes(rung, sizes):
    _, _, report = product(rung, *sizes)
    assert report.sectors == expected_sectors(*sizes, rows_along_x=rung == "naive")


@pytest.mark.parametrize("sizes", ODD)
@pytest.mark.parametrize("rung", RUNGS)
def test_products_are_right_for_any_sizes(rung, sizes):
    got, want, report = product(rung, *sizes)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)
    assert report.problems == ()


@pytest.mark.parametrize("rung", RUNGS)
def test_counting_changes_no_value(rung):
    got, _, _ = product(rung, 9, 18, 7)
    c = np.zeros_like(got)
    RUNGS[rung].kernel[RUNGS[rung].grid(9, 7)](draw(9, 18), draw(18, 7), c)
    np.testing.assert_array_equal(got, c)


@pytest.mark.parametrize(("stride", "passes"), [(0, 1), (1, 1), (2, 2), (3, 1), (8, 8), (32, 32), (33, 1)])
def test_banks_serve_one_word_at_a_time(stride, passes):
    def kernel(out):
        shared = cuda.shared.array(1100, float32)
        me = cuda.threadIdx.x
        shared[stride * me] = me if stride else 0
        cuda.syncthreads()
        out[me] = shared[stride * me]

    report = launch(kernel, 1, WARP, np.zeros(WARP, np.float32))
    read = next(each for each in report.accesses if each.shared and not each.write)
    assert (read.served, read.needed) == (passes, 1)


def test_wide_numbers_take_two_passes():
    def kernel(out):
        shared = cuda.shared.array(WARP, float64)
        shared[cuda.threadIdx.x] = 1
        out[cuda.threadIdx.x] = shared[cuda.threadIdx.x]

    report = launch(kernel, 1, WARP, np.zeros(WARP))
    assert [(each.served, each.needed) for each in report.accesses if each.shared] == [(2, 2), (2, 2)]
    assert report.sectors == WARP * 8 // SECTOR


def test_divergence_is_seen():
    def kernel(out):
        if cuda.threadIdx.x % 2:
            out[cuda.threadIdx.x] = 1
        else:
            out[cuda.threadIdx.x] = 2

    report = launch(kernel, 1, 40, np.zeros(40, np.float32))
    assert [(each.requests, each.lanes) for each in report.accesses] == [(2, 20), (2, 20)]


def test_parts_of_arrays_and_scalars_and_transposed_arrays():
    def kernel(x, factor, y):
        row = x[cuda.blockIdx.x]
        y[cuda.blockIdx.x, cuda.threadIdx.x] = factor * row[cuda.threadIdx.x]

    x, y = draw(8, 3), np.zeros((3, 8), np.float32)
    report = launch(kernel, 3, 8, x.T, 2, y)
    np.testing.assert_array_equal(y, 2 * x.T)
    # the rows of x.T are columns of x, three numbers apart: three sectors hold all of x
    assert (report.of("x").sectors, report.of("y").sectors) == (3 * 3, 3)


def staged(first: bool = True, second: bool = True, column: bool = False):
    """A product of tiles with some of its barriers, or with an index of the second tile that is wrong."""

    def kernel(a, b, c):
        sa = cuda.shared.array((4, 4), float32)
        sb = cuda.shared.array((4, 4), float32)
        j, i = cuda.grid(2)
        x, y = cuda.threadIdx.x, cuda.threadIdx.y
        total = float32(0)
        for k in range(0, a.shape[1], 4):
            sa[y, x] = a[i, k + x]
            sb[0 if column else y, x] = b[k + y, j]
            if first:
                cuda.syncthreads()
            for step in range(4):
                total += sa[y, step] * sb[step, x]
            if second:
                cuda.syncthreads()
        c[i, j] = total

    return kernel


@pytest.mark.parametrize(
    ("barriers", "messages"),
    [
        ({}, []),
        (
            {"first": False},
            [
                r"race on sa\[0, 0\] in block \(0\): written by thread \(0, 0\) in line \d+ and read by thread "
                r"\(1, 0\) in line \d+, with no barrier between them",
                r"race on sb\[0, 0\] in block \(0\): written by thread \(0, 0\)",
            ],
        ),
        ({"second": False}, [r"race on sa\[0, 0\] .* read by thread", r"race on sb\[0, 0\] .* read by thread"]),
        (
            {"column": True},
            [
                r"race on sb\[0, 0\] .* written by thread \(0, 0\) .* and written by thread \(0, 1\)",
                r"sb\[1, 0\] in block \(0\) is read by thread \(0, 0\) in line \d+, but nobody has written it",
                r"sb\[2, 0\]",
                r"sb\[3, 0\]",
            ],
        ),
    ],
)
def test_races_are_named(barriers, messages):
    a, b, c = draw(4, 8), draw(8, 4), np.zeros((4, 4), np.float32)
    report = launch(staged(**barriers), (1, 1), (4, 4), a, b, c)
    assert len(report.problems) == len(messages)
    for problem, message in zip(report.problems, messages, strict=True):
        assert re.match(message, problem), problem
    assert np.allclose(c, a @ b, atol=1e-5) == (not messages)


def test_arrays_of_the_same_name_are_different_ones():
    @cuda.jit(device=True)
    def neighbour(value):
        tile = cuda.shared.array(4, float32)
        tile[cuda.threadIdx.x] = value
        cuda.syncthreads()
        return tile[(cuda.threadIdx.x + 1) % 4]

    def kernel(out):
        tile = cuda.shared.array(4, float32)
        tile[cuda.threadIdx.x] = 10
        out[cuda.threadIdx.x] = neighbour(cuda.threadIdx.x) + tile[cuda.threadIdx.x]

    out = np.zeros(4, np.float32)
    assert launch(kernel, 1, 4, out).problems == ()
    np.testing.assert_array_equal(out, [11, 12, 13, 10])


def test_blocks_race_for_global_memory():
    def kernel(out):
        out[cuda.threadIdx.x] += cuda.blockIdx.x

    (problem,) = launch(kernel, 2, 4, np.zeros(4, np.float32)).problems
    assert problem.startswith("race on out[0]: written by thread (0) of block (0) in line")
    assert "read by thread (0) of block (1)" in problem


@pytest.mark.parametrize(
    ("last", "problem"), [(6, "only 6 of 8 threads of block (0) reach the barrier in line"), (8, "")]
)
def test_all_threads_have_to_reach_a_barrier(last, problem):
    def kernel(out):
        if cuda.threadIdx.x < last:
            cuda.syncthreads()
        out[cuda.threadIdx.x] = 1

    out = np.zeros(8, np.float32)
    problems = launch(kernel, 1, 8, out).problems
    assert out.all()
    assert len(problems) == (last < 8)
    assert all(text.startswith("only 6 of 8 threads of block (0) reach the barrier in line") for text in problems)


def test_different_barriers():
    def kernel(out):
        if cuda.threadIdx.x % 2:
            cuda.syncthreads()
        else:
            cuda.syncthreads()
        out[cuda.threadIdx.x] = 1

    (problem,) = launch(kernel, 1, 8, np.zeros(8, np.float32)).problems
    assert problem.startswith("the threads of block (0) wait at different barriers, in lines")


def test_elements_that_do_not_exist():
    def kernel(x, out):
        cuda.syncthreads()
        out[cuda.grid(1)] = x[cuda.grid(1), 0]
        cuda.syncthreads()

    with pytest.raises(GPUError, match=r"x\[5, 0\] is out of bounds") as error:
        launch(kernel, 2, 4, draw(5, 2), np.zeros(8, np.float32))
    assert error.value.parts["where"].startswith("thread (1) of block (1), line")
    assert "out[cuda.grid(1)] = x[cuda.grid(1), 0]" in error.value.parts["where"]
    assert "(5, 2)" in error.value.parts["expected"]
    with pytest.raises(GPUError) as error:
        launch(kernel, (1, 2), 4, draw(2, 2), np.zeros(8, np.float32))
    assert error.value.parts["where"].startswith("thread (2) of block (0, 0), line")


def test_parts_cannot_be_written():
    def kernel(out):
        out[:] = 1

    with pytest.raises(GPUError, match="assigns elements"):
        launch(kernel, 1, 4, np.zeros(4, np.float32))


def test_errors_of_a_kernel_are_its_own():
    def kernel(out):
        if cuda.threadIdx.x == 2:
            raise ValueError("too late")
        cuda.syncthreads()

    with pytest.raises(ValueError, match="too late"):
        launch(kernel, 1, 4, np.zeros(4, np.float32))


def test_a_report_is_a_table(of_64):
    text = str(of_64["tiled"])
    assert "part_of_a  shared, written" in text
    assert text.splitlines()[-1] == (
        "1,152 requests to global memory, 4,608 sectors, 147,456 bytes; "
        "17,408 passes through shared memory, 0 of them bank conflicts; barriers: 8"
    )
    assert str(launch(lambda out: None, 1, 1, np.zeros(1))).endswith("0 requests to global memory, 0 sectors, 0 bytes")
