"""Bytes moved by attention: against a walk over the grid, a sum over the arrays of the steps, and XLA's count."""

import jax
import numpy as np
import pytest

from mlhood.jaxlab.pallas.attention import reference
from mlhood.jaxlab.pallas.traffic import traffic
from mlhood.jaxlab.xla.views import UNFUSED, view


@pytest.mark.parametrize("causal", [False, True])
def test_fused_bytes_are_those_of_the_blocks_with_a_visible_key(causal):
    queries, keys, d, block_q, block_k = 100, 70, 24, 32, 16
    visible = np.tril(np.ones((128, keys), bool)) if causal else np.ones((128, keys), bool)
    elements = 0
    for top in range(0, 128, block_q):
        elements += 2 * block_q * d
        for left in range(0, keys, block_k):
            elements += 2 * block_k * d * visible[top : top + block_q, left : left + block_k].any()
    assert traffic(queries, keys, d, causal, block_q=block_q, block_k=block_k).fused == 4 * elements


def test_unfused_bytes_are_those_of_the_steps_arrays():
    q, k, v, scores = (np.zeros(shape, "float16") for shape in ((50, 8), (30, 8), (30, 8), (50, 30)))
    steps = [(q, k, scores), (scores, scores), (scores, v, q)]
    assert traffic(50, 30, 8, itemsize=2).unfused == sum(array.nbytes for step in steps for array in step)


def test_xla_moves_at_least_what_is_counted_as_unfused():
    shape = jax.ShapeDtypeStruct((1, 1, 256, 64), "float32")
    assert (
        view(reference, shape, shape, shape, options=UNFUSED).cost("optimized").bytes >= traffic(256, 256, 64).unfused
    )


def test_the_gain_grows_with_the_block_of_queries():
    factors = [traffic(1024, 1024, 64, block_q=block).factor for block in (16, 64, 256)]
    assert factors == sorted(factors)
    assert factors[0] < 2 < factors[2]
