"""Attention of few queries against torch in float64."""

import numpy as np
import pytest
import torch

from mlhood.errors import KernelError
from mlhood.kernels import attention
from mlhood.kernels.attention import Sizes
from tests.kernels.guards import run_guarded

SIZES = [Sizes(2, 1, 1, 16, 16), Sizes(3, 1, 7, 64, 32), Sizes(2, 3, 16, 16, 48), Sizes(1, 2, 1025, 64, 64)]
MASKS = {"none": None, "shared": (0, 0), "by query": (0, 1), "by head and query": (1, 1)}


def drawn(sizes):
    draw = np.random.default_rng(sizes.keys)
    shapes = {"q": (sizes.queries, sizes.depth), "k": (sizes.keys, sizes.depth), "v": (sizes.keys, sizes.width)}
    return {name: 2 * draw.standard_normal((sizes.heads, *shape), np.float32) for name, shape in shapes.items()}


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize("mask", MASKS)
@pytest.mark.parametrize("sizes", SIZES, ids=str)
def test_attention_is_that_of_torch(sizes, mask, causal, target):
    arrays, strides = drawn(sizes), MASKS[mask]
    given = torch.zeros(1, 1, sizes.keys, dtype=torch.float64)
    if strides is not None:
        shape = (sizes.heads if strides[0] else 1, sizes.queries if strides[1] else 1, sizes.keys)
        draw = np.random.default_rng(1)
        array = np.where(draw.random(shape) < 0.3, -np.inf, draw.standard_normal(shape)).astype(np.float32)
        array[..., 0] = 0  # each query sees a key
        arrays["mask"], given = array, torch.from_numpy(array).double()
        strides = (shape[1] * shape[2] * strides[0], shape[2] * strides[1])
    hidden = np.triu(np.full((sizes.queries, sizes.keys), -np.inf), 1) if causal else 0.0
    q, k, v = (torch.from_numpy(arrays[name]).double() for name in "qkv")
    expected = torch.nn.functional.scaled_dot_product_attention(q, k, v, given + torch.as_tensor(hidden), scale=0.2)
    call = attention.attend(sizes, 0.2, mask=strides, causal=causal, target=target)
    y = run_guarded(call, (sizes.heads, sizes.queries, sizes.width), **arrays)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)


def test_a_query_that_sees_nothing_gets_0(target):
    sizes = Sizes(1, 2, 20, 16, 16)
    mask = np.zeros((2, 20), np.float32)
    mask[1] = -np.inf
    y = run_guarded(attention.attend(sizes, 1.0, mask=(0, 20), target=target), (1, 2, 16), **drawn(sizes), mask=mask)
    assert np.abs(y[0, 0]).min() > 0
    assert not y[0, 1].any()


@pytest.mark.parametrize(("depth", "width"), [(12, 16), (16, 20), (0, 16)])
def test_other_lengths_are_refused(depth, width):
    with pytest.raises(KernelError, match="without a kernel"):
        attention.attend(Sizes(1, 1, 4, depth, width), 1.0)
