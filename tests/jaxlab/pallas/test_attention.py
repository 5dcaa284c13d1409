"""Fused attention: equal to torch and to the formula, for odd lengths, masks, dtypes and blocks; the errors."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch.nn.functional import scaled_dot_product_attention

from mlhood.errors import XlaError
from mlhood.jaxlab.pallas.attention import attention, key_blocks, reference

# absolute, for results near 1: a few units of the dtype's last place
TOLERANCE = {"float32": 4e-6, "float16": 4e-3, "bfloat16": 4e-2}


def arrays(queries, keys, d, dtype="float32", heads=(2, 2), seed=0):
    random = np.random.default_rng(seed)
    return [jnp.asarray(random.standard_normal((*heads, length, d)), dtype) for length in (queries, keys, keys)]


def by_torch(q, k, v, causal):
    # in float32: what is compared is the rounding of ours only
    tensors = [torch.tensor(np.asarray(array, "float32")) for array in (q, k, v)]
    return scaled_dot_product_attention(*tensors, is_causal=causal).numpy()


@pytest.mark.parametrize("causal", [False, True])
@pytest.mark.parametrize(
    ("queries", "keys", "d", "block_q", "block_k"),
    [
        (64, 64, 64, 64, 64),
        (100, 77, 20, 32, 16),
        (33, 150, 64, 16, 64),
        (90, 20, 8, 64, 32),
        (1, 1, 1, 16, 16),
    ],
)
def test_it_equals_torch(queries, keys, d, block_q, block_k, causal):
    q, k, v = arrays(queries, keys, d)
    ours = attention(q, k, v, causal, block_q=block_q, block_k=block_k)
    assert ours.shape == q.shape
    np.testing.assert_allclose(ours, by_torch(q, k, v, causal), atol=TOLERANCE["float32"], rtol=0)


@pytest.mark.parametrize("dtype", TOLERANCE)
def test_the_result_has_the_dtype_and_its_accuracy(dtype):
    q, k, v = arrays(48, 40, 16, dtype)
    ours = attention(q, k, v, block_q=16, block_k=32)
    assert ours.dtype == dtype
    np.testing.assert_allclose(np.asarray(ours, "float32"), by_torch(q, k, v, False), atol=TOLERANCE[dtype], rtol=0)


@settings(max_examples=8)
@given(st.integers(1, 50), st.integers(1, 50), st.integers(1, 24), st.booleans(), st.sampled_from([16, 32]))
def test_blocks_change_nothing(queries, keys, d, causal, block):
    q, k, v = arrays(queries, keys, d, heads=(1, 1))
    ours = attention(q, k, v, causal, block_q=block, block_k=48 - block)
    np.testing.assert_allclose(ours, reference(q, k, v, causal), atol=TOLERANCE["float32"], rtol=0)


def test_large_scores_do_not_overflow():
    q, k, v = arrays(32, 64, 16)
    ours = attention(100 * q, 100 * k, v, block_q=16, block_k=16)
    np.testing.assert_allclose(ours, by_torch(100 * q, 100 * k, v, False), atol=1e-4, rtol=0)


def test_the_reference_equals_torch():
    q, k, v = arrays(20, 30, 8)
    for causal in (False, True):
        np.testing.assert_allclose(reference(q, k, v, causal), by_torch(q, k, v, causal), atol=2e-6, rtol=0)


def test_a_causal_block_reads_just_the_keys_that_it_sees():
    for block_q, block_k, keys in ((16, 16, 64), (32, 16, 100), (16, 64, 100)):
        for block in range(5):
            seen = {min(query, keys - 1) // block_k for query in range((block + 1) * block_q)}
            assert key_blocks(block, keys, True, block_q, block_k) == len(seen)
        assert key_blocks(0, keys, False, block_q, block_k) == -(-keys // block_k)


@pytest.mark.parametrize(
    ("q_shape", "k_shape", "v_shape", "message"),
    [
        ((1, 4, 8, 16), (1, 2, 8, 16), (1, 2, 8, 16), "jnp.repeat"),
        ((1, 2, 8, 16), (1, 2, 8, 32), (1, 2, 8, 32), "invalid shapes"),
        ((1, 2, 8, 16), (1, 2, 8, 16), (1, 2, 9, 16), "invalid shapes"),
        ((8, 16), (8, 16), (8, 16), "invalid shapes"),
        ((1, 2, 8, 16), (1, 2, 0, 16), (1, 2, 0, 16), "over nothing"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(q_shape, k_shape, v_shape, message):
    with pytest.raises(XlaError) as error:
        attention(jnp.zeros(q_shape), jnp.zeros(k_shape), jnp.zeros(v_shape))
    assert message in str(error.value)


def test_dtypes_that_do_not_fit_are_refused():
    q, k, v = arrays(8, 8, 8)
    for wrong in ((q.astype("float16"), k, v), tuple(array.astype("int32") for array in (q, k, v))):
        with pytest.raises(XlaError, match="invalid dtypes"):
            attention(*wrong)


@pytest.mark.parametrize("blocks", [{"block_q": 8}, {"block_k": 48}, {"block_q": 0}, {"block_k": -16}])
def test_blocks_are_powers_of_two(blocks):
    with pytest.raises(XlaError, match=f"invalid {next(iter(blocks))}"):
        attention(*arrays(8, 8, 8), **blocks)


@pytest.mark.gpu
@pytest.mark.skipif(jax.default_backend() != "gpu", reason="JAX sees no GPU")
@pytest.mark.parametrize("dtype", TOLERANCE)
def test_compiled_for_a_gpu_it_equals_the_interpreter(dtype):
    q, k, v = arrays(200, 150, 40, dtype)
    for causal in (False, True):
        compiled = np.asarray(attention(q, k, v, causal), "float32")
        interpreted = np.asarray(attention(q, k, v, causal, interpret=True), "float32")
        np.testing.assert_allclose(compiled, interpreted, atol=TOLERANCE[dtype], rtol=0)
