"""Bytes are the same in both layouts."""

import numpy as np
import pytest

from mlhood.kernels.geometry import to_blocked, to_plain
from mlhood.kernels.layout import prepare_bytes
from tests.kernels.quantized import run_guarded


@pytest.mark.parametrize("shape", [(2, 37, 5, 7), (1, 16, 4, 8), (1, 3, 1, 1), (3, 32, 2, 3)])
def test_a_conversion_and_back(target, shape):
    x = np.random.default_rng(0).integers(-128, 128, shape).astype(np.int8)
    blocked = to_blocked(x, 16)
    out = run_guarded(prepare_bytes(shape, to_blocked=True, target=target), 2, {"x": x}, blocked)
    assert np.array_equal(to_plain(out, shape[1]), x)
    back = run_guarded(prepare_bytes(shape, to_blocked=False, target=target), 2, {"x": blocked}, x)
    assert np.array_equal(back, x)
