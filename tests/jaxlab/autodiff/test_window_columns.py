"""Windows as columns, and the sums that go back: against torch, and against each other."""

import numpy as np
import pytest
import torch
from torch.nn import functional

from mlhood.errors import KernelError
from mlhood.jaxlab.autodiff import AutodiffError, columns, scatter

DRAW = np.random.default_rng(0)
# shape, kernel, stride, padding
WINDOWS = [
    ((1, 1, 4, 5), 1, 1, 0),
    ((2, 3, 7, 6), (3, 2), (2, 3), (1, 0)),
    ((2, 2, 8, 9), 3, 2, 1),  # a last column that no window covers
    ((1, 2, 5, 5), 5, 1, 2),
    ((2, 1, 6, 6), 2, 3, 0),  # gaps between windows
]


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), WINDOWS)
def test_both_are_torchs_unfold_and_fold(shape, kernel, stride, padding):
    x = DRAW.standard_normal(shape)
    found = columns(x, kernel, stride, padding)
    expected = functional.unfold(torch.tensor(x), kernel, stride=stride, padding=padding)
    np.testing.assert_array_equal(found, expected.numpy())

    c = DRAW.standard_normal(found.shape)
    folded = functional.fold(torch.tensor(c), shape[2:], kernel, stride=stride, padding=padding)
    np.testing.assert_allclose(scatter(c, shape, kernel, stride, padding), folded.numpy(), atol=1e-12)


@pytest.mark.parametrize(("shape", "kernel", "stride", "padding"), WINDOWS)
def test_one_is_the_others_transpose(shape, kernel, stride, padding):
    x = DRAW.standard_normal(shape)
    c = DRAW.standard_normal(columns(x, kernel, stride, padding).shape)
    one = (columns(x, kernel, stride, padding) * c).sum()
    assert one == pytest.approx((x * scatter(c, shape, kernel, stride, padding)).sum())


def test_paddings_may_differ_and_hold_any_number():
    x = np.ones((1, 1, 2, 2), np.float32)
    found = columns(x, 2, 1, (1, 0, 0, 0), fill=-np.inf)
    np.testing.assert_array_equal(found, [[[-np.inf, 1], [-np.inf, 1], [1, 1], [1, 1]]])
    assert found.dtype == np.float32
    assert scatter(np.ones((1, 4, 2)), x.shape, 2, 1, (1, 0, 0, 0)).sum() == 6  # of 8, two lie in the padding


def test_what_does_not_fit_is_told():
    with pytest.raises(KernelError):
        columns(np.ones((1, 1, 2, 2)), 3)
    with pytest.raises(KernelError):
        columns(np.ones((2, 2)), 1)
    with pytest.raises(AutodiffError, match="not the columns"):
        scatter(np.ones((1, 4, 3)), (1, 1, 2, 2), 2)
