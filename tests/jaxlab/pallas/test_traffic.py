"""Bytes moved by attention: against a walk over the grid, a sum over the arrays of the steps, and XLA's count."""

import jax

from mlhood.jaxlab.pallas.attention import reference
from mlhood.jaxlab.pallas.pallas_figures import traffic
from mlhood.jaxlab.xla.views import UNFUSED, view


def test_bytes_are_those_of_whole_blocks_and_of_the_steps_arrays():
    queries, keys, d, block_q, block_k = 100, 70, 24, 32, 16
    elements = sum(2 * block_q * d + 2 * d * len(range(0, keys, block_k)) * block_k for _ in range(0, queries, block_q))
    counted = traffic(queries, keys, d, block_q=block_q, block_k=block_k)
    assert counted.fused == 4 * elements
    q, k, scores = queries * d, keys * d, queries * keys
    assert counted.unfused == 4 * (q + k + scores + scores + scores + scores + k + q)


def test_xla_moves_at_least_what_is_counted_as_unfused():
    shape = jax.ShapeDtypeStruct((1, 1, 256, 64), "float32")
    assert (
        view(reference, shape, shape, shape, options=UNFUSED).cost("optimized").bytes >= traffic(256, 256, 64).unfused
    )


def test_the_gain_grows_with_the_block_of_queries():
    factors = [traffic(1024, 1024, 64, block_q=block).factor for block in (16, 64, 256)]
    assert factors == sorted(factors)
    assert factors[0] < 2 < factors[2]
