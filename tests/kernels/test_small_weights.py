"""Products with weights of 8 and 4 bits against NumPy in float64."""

import numpy as np
import pytest

from mlhood.errors import KernelError
from mlhood.kernels import small_weights
from mlhood.kernels.codegen.target import host
from mlhood.kernels.product import ProductSizes
from tests.kernels.guards import run_guarded

# bits, rows, columns, k, weights that share a scale
CASES = [
    (8, 1, 70, 33, 33),
    (8, 5, 100, 96, 32),
    (8, 2, 3, 5, 2),
    (4, 1, 70, 64, 32),
    (4, 6, 48, 130, 64),
    (4, 3, 1, 2, 2),
]


def drawn(bits, m, n, k, group):
    draw, most = np.random.default_rng(n), 2 ** (bits - 1)
    w = draw.integers(-most, most, (n, k)).astype(np.int8)
    w[0, 0] = -most
    scale, bias = draw.random((n, -(-k // group)), np.float32) + 0.1, draw.standard_normal(n).astype(np.float32)
    return draw.standard_normal((m, k)).astype(np.float32), w, scale, bias


@pytest.mark.parametrize("case", CASES, ids=str)
def test_products(case, target):
    bits, m, n, k, group = case
    a, w, scale, bias = drawn(*case)
    expected = a.astype(np.float64) @ (w * np.repeat(scale, group, 1)[:, :k]).T + bias
    assert small_weights.bits_of(w, group) == bits
    packed = small_weights.pack_weights(w, bits, small_weights.tile_of(m, target)[1] * target.lanes)
    for steps, least in (((), -np.inf), ((("Relu", (), (0,)),), 0)):
        call = small_weights.prepare(ProductSizes(m, n, k), packed, scale, group, bias, target=target, epilogue=steps)
        y = run_guarded(call, (m, n), a=a)
        np.testing.assert_allclose(y, expected.clip(least), rtol=1e-4, atol=1e-4 * np.abs(expected).max())
    assert packed.nbytes == packed.shape[0] * packed.shape[2] * k * bits // 8


def test_an_empty_product_is_refused():
    packed = small_weights.pack_weights(np.zeros((1, 2), np.int8), 8, 4 * host().lanes)
    with pytest.raises(KernelError, match="without a kernel"):
        small_weights.prepare(ProductSizes(0, 1, 2), packed, np.ones((1, 1), np.float32), 2)
