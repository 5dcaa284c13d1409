"""The simulated array: its product against NumPy, its cycles against the closed form."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.dataflow.systolic import DATAFLOWS, Array, Product, count, simulate
from mlhood.dataflow.systolic.simulator import EMPTY
from mlhood.errors import DataflowError

SIZES = st.integers(1, 9)


def matrices(m: int, n: int, k: int) -> tuple[np.ndarray, np.ndarray]:
    source = np.random.default_rng(m + 10 * n + 100 * k)
    return source.integers(-99, 99, (m, k)), source.integers(-99, 99, (k, n))


@settings(max_examples=150)
@given(m=SIZES, n=SIZES, k=SIZES, rows=SIZES, columns=SIZES, dataflow=st.sampled_from(list(DATAFLOWS)))
def test_the_simulation_gives_the_product_in_the_cycles_of_the_closed_form(m, n, k, rows, columns, dataflow):
    (x, w), array = matrices(m, n, k), Array(rows, columns, dataflow)
    run, closed = simulate(x, w, array), count(Product("product", m, n, k), array)
    np.testing.assert_array_equal(run.product, x @ w)
    assert (run.cycles, run.fold[-1] + 1) == (closed.cycles, closed.folds)
    assert run.busy.mean() == pytest.approx(closed.utilisation)


def test_floats_are_multiplied_in_their_dtype():
    x, w = (matrix.astype(np.float32) / 7 for matrix in matrices(6, 5, 7))
    run = simulate(x, w, Array(3, 4, "os"))
    assert run.product.dtype == np.float32
    np.testing.assert_allclose(run.product, x @ w, rtol=1e-5)


def test_weights_are_shifted_down_and_inputs_are_skewed():
    run = simulate(*matrices(6, 3, 3), Array(3, 3, "ws"))
    assert [row[0] for row in run.resident[:3, 0]] == [2, 1, 0]
    np.testing.assert_array_equal(run.resident[2], np.repeat([[0], [1], [2]], 3, axis=1))
    np.testing.assert_array_equal(run.step[5], [[2, 1, 0], [1, 0, EMPTY], [0, EMPTY, EMPTY]])
    assert not run.busy[:3].any()
    assert run.busy[-1].sum() == 1
    assert run.busy[-1, 2, 2]


def test_a_sum_is_complete_with_its_last_term():
    run = simulate(*matrices(2, 2, 4), Array(2, 2, "os"))
    np.testing.assert_array_equal(run.step[:, 1, 1], [EMPTY, EMPTY, 0, 1, 2, 3])


@pytest.mark.parametrize(
    ("x", "w", "message"),
    [
        (np.ones((2, 3)), np.ones((2, 3)), "cannot be multiplied"),
        (np.ones((2, 0)), np.ones((0, 3)), "cannot be multiplied"),
        (np.ones(3), np.ones((3, 3)), "cannot be multiplied"),
        (np.ones((2, 3)), np.ones((3, 2), np.float32), "cannot be multiplied"),
        (np.ones((2000, 2000)), np.ones((2000, 2000)), "too large"),
    ],
)
def test_invalid_operands_are_rejected(x, w, message):
    with pytest.raises(DataflowError, match=message):
        simulate(x, w, Array(4, 4, "ws"))
