"""The product of bytes is exact, on every processor."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.errors import KernelError
from mlhood.kernels import int8_product, vectorised
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64, Target, available

VNNI = Target("avx512", "x86_64-unknown-linux-gnu", "cascadelake", "", lanes=16, registers=32, masked=True, dot=True)


@pytest.fixture(scope="module", params=available(), ids=lambda target: target.name)
def any_target(request):
    return request.param


@settings(max_examples=25)
@given(
    m=st.sampled_from([0, 1, 5, 14, 47]),
    k=st.one_of(st.integers(0, 20), st.sampled_from([100, 513, 2100])),
    n=st.one_of(st.integers(0, 70), st.just(130)),
    threads=st.sampled_from([1, 2]),
    most=st.sampled_from([127, 255]),
)
def test_a_product_is_exact(any_target, m, k, n, threads, most):
    rng = np.random.default_rng(m + k + n)
    a, b = rng.integers(0, most + 1, (m, k), np.uint8), rng.integers(-128, 128, (k, n), np.int8)
    c = int8_product(a, b, threads=threads, target=any_target)
    assert c.dtype == np.int32
    assert np.array_equal(c, a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize("most", [127, 128, 255])
def test_the_largest_numbers_do_not_saturate(any_target, most):
    a, low, high = np.full((3, 64), most, np.uint8), np.full((64, 20), -128, np.int8), np.full((64, 20), 127, np.int8)
    assert (int8_product(a, low, target=any_target) == -128 * most * 64).all()
    assert (int8_product(a, high, target=any_target) == 127 * most * 64).all()


def test_strided_matrices():
    rng = np.random.default_rng(0)
    a, b = rng.integers(0, 256, (40, 60), np.uint8).T[::2], rng.integers(-128, 128, (90, 80), np.int8)[::-2, ::2][:40]
    assert np.array_equal(int8_product(a, b), a.astype(np.int32) @ b.astype(np.int32))


@pytest.mark.parametrize(
    ("a", "b", "message"),
    [
        (np.zeros((2, 3), np.int8), np.zeros((3, 2), np.int8), "a is not a matrix of uint8"),
        (np.zeros((2, 3), np.uint8), np.zeros((3, 2), np.uint8), "b is not a matrix of int8"),
        (np.zeros((2, 3), np.uint8), np.zeros((2, 3), np.int8), "do not conform"),
    ],
)
def test_invalid_operands_are_refused(a, b, message):
    with pytest.raises(KernelError, match=message):
        int8_product(a, b)


@pytest.mark.parametrize(
    ("target", "integers", "instruction"), [(VNNI, "bytes", "vpdpbusd"), (AARCH64, "pairs", "smull")]
)
def test_other_processors_code_is_assembled(target, integers, instruction):
    text = jit.compile_ir(vectorised.build(target, 6, 2, True, False, integers), target, assembly=True)
    assert text.count(instruction) >= 12
