"""The Triton IR of a kernel, written without a GPU: its products, loads and loop; the errors."""

import re
from functools import partial

import jax
import pytest

from mlhood.errors import XlaError
from mlhood.jaxlab.pallas.attention import attention
from mlhood.jaxlab.pallas.triton_ir import excerpt, operations, triton_ir


def ir_of_attention(dtype="float16", length=192, d=64, causal=False):
    shape = jax.ShapeDtypeStruct((1, 2, length, d), dtype)
    return triton_ir(partial(attention, causal=causal, interpret=False), shape, shape, shape)


def used_loads(text):
    """The names of the loads whose results are operands of something."""
    names = re.findall(r"(%\w+) = tt\.load", text)
    return [name for name in names if len(re.findall(rf"{name}\b", text)) > 1]


@pytest.fixture(scope="module")
def text():
    return ir_of_attention()


def test_the_kernel_is_one_loop_with_two_products_and_one_store(text):
    counts = operations(text)
    assert "tt.func public @attention" in text
    # q before the loop; k and v in it; behind it, what a store replaces is loaded, too, and never used
    assert {name: counts[name] for name in ("scf.for", "tt.dot", "tt.load", "tt.store")} == {
        "scf.for": 1,
        "tt.dot": 2,
        "tt.load": 4,
        "tt.store": 1,
    }
    assert len(used_loads(text)) == 3
    assert text.index("tt.load") < text.index("scf.for") < text.index("tt.dot") < text.index("tt.store")


@pytest.mark.parametrize(("dtype", "element"), [("float32", "f32"), ("float16", "f16"), ("bfloat16", "bf16")])
def test_products_take_the_arguments_type_and_sum_in_float32(dtype, element):
    product = excerpt(ir_of_attention(dtype, 150, 40), "tt.dot", 1)
    assert f"tensor<64x64x{element}> * tensor<64x64x{element}> -> tensor<64x64xf32>" in product
    # float32 is multiplied in full
    assert ("tf32" in product) == (dtype != "float32")


def test_a_causal_loop_ends_by_the_number_of_the_block(text):
    causal = ir_of_attention(causal=True)
    assert operations(causal)["arith.minsi"] > operations(text)["arith.minsi"]


def test_an_interpreted_kernel_has_no_triton_ir():
    shape = jax.ShapeDtypeStruct((1, 1, 16, 16), "float32")
    with pytest.raises(XlaError, match="no Triton kernel") as error:
        triton_ir(partial(attention, interpret=True), shape, shape, shape)
    assert "interpret=False" in str(error.value)


def test_an_excerpt_starts_at_the_operation_and_names_those_there_are(text):
    lines = excerpt(text, "scf.for", 3).splitlines()
    assert len(lines) == 3
    assert "scf.for" in lines[0]
    with pytest.raises(XlaError) as error:
        excerpt(text, "tt.atomic_rmw")
    assert "tt.dot" in str(error.value)
