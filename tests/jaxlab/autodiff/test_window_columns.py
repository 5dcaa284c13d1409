"""im2col and col2im: against torch, and against each other."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from mlhood.errors import KernelError
from mlhood.jaxlab.autodiff import AutodiffError, columns, scatter

RNG = np.random.default_rng(0)
# shape, kernel, stride, padding
WINDOWS = [
    ((1, 1, 4, 5), 1, 1, 0),
    ((2, 3, 7, 6), (3, 2), (2, 3), (1, 0)),
    ((2, 2, 8, 9), 3, 2, 1),  # a last column that no window covers
    ((1, 2, 5, 5), 5, 1, 2),
    ((2, 1, 6, 6), 2, 3, 0),  # gaps between windows
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), WINDOWS)
def test_both_match_torchs_unfold_and_fold(shape, kernel, stride, padding):
    x = RNG.standard_normal(shape)
    got = columns(x, kernel, stride, padding)
    expected = functional.unfold(torch.tensor(x), kernel, stride=stride, padding=padding)
    np.testing.assert_array_equal(got, expected.numpy())

    c = RNG.standard_normal(got.shape)
    folded = functional.fold(torch.tensor(c), shape[2:], kernel, stride=stride, padding=padding)
    np.testing.assert_allclose(scatter(c, shape, kernel, stride, padding), folded.numpy(), atol=1e-12)


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), WINDOWS)
def test_scatter_is_the_transpose_of_columns(shape, kernel, stride, padding):
    x = RNG.standard_normal(shape)
    windows = columns(x, kernel, stride, padding)
    c = RNG.standard_normal(windows.shape)
    assert (windows * c).sum() == pytest.approx((x * scatter(c, shape, kernel, stride, padding)).sum())


def test_asymmetric_padding_with_any_fill_value():
    x = np.ones((1, 1, 2, 2), np.float32)
    got = columns(x, 2, 1, (1, 0, 0, 0), fill=-np.inf)
    np.testing.assert_array_equal(got, [[[-np.inf, 1], [-np.inf, 1], [1, 1], [1, 1]]])
    assert got.dtype == np.float32
    assert scatter(np.ones((1, 4, 2)), x.shape, 2, 1, (1, 0, 0, 0)).sum() == 6  # two of 8 fall into the padding


def test_mismatched_shapes_are_rejected():
    with pytest.raises(KernelError):
        columns(np.ones((1, 1, 2, 2)), 3)
    with pytest.raises(KernelError):
        columns(np.ones((2, 2)), 1)
    with pytest.raises(AutodiffError, match="columns do not match"):
        scatter(np.ones((1, 4, 3)), (1, 1, 2, 2), 2)
