"""The representations of a function: a convolution with bias and relu, whose properties are known in closed form."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.errors import KernelError, XlaError
from mlhood.jaxlab.operators.resnet import conv2d
from mlhood.jaxlab.xla.hlo import parse
from mlhood.jaxlab.xla.views import ConvolutionLayout, convolutions, view

RESULT = 16 * 10 * 12


def test_the_texts_are_those_of_jax_and_xla(plain):
    assert plain.stablehlo.count("stablehlo.convolution(") == 1
    assert plain.hlo.startswith("HloModule")
    assert plain.optimized.startswith("HloModule")
    assert "conftest" not in plain.optimized
    assert repr(plain) == "View('conv_bias_relu', 3 arguments)"


def test_large_constants_are_elided():
    weights = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    product = view(lambda x: x @ weights, np.ones((2, 100), np.float32))
    assert max(len(product.stablehlo), len(product.hlo), len(product.optimized)) < 5000
    for stage, opcode in (("stablehlo", "dot_general"), ("hlo", "dot")):
        assert (product.operations(stage)[opcode], product.operations(stage)["constant"]) == (1, 1)


def test_operations_before_optimisation_are_those_of_the_source(plain):
    once = dict.fromkeys(("add", "call", "constant", "convolution", "maximum"), 1)
    assert plain.operations("stablehlo") == {"broadcast_in_dim": 4, "return": 2, **once}
    counts = plain.operations("hlo")
    assert [counts[opcode] for opcode in ("convolution", "add", "maximum")] == [1, 1, 1]
    assert plain.fusions()
    assert plain.operations("optimized")["convolution"] == 1


def test_bias_and_relu_are_one_loop_unless_fusion_is_off(plain, unfused):
    assert any({"add", "maximum"} <= set(opcodes) for opcodes in plain.fusions().values())
    assert not any({"add", "maximum"} <= set(opcodes) for opcodes in unfused.fusions().values())
    assert unfused.cost().bytes > plain.cost().bytes


def test_xla_counts_only_multiplications_inside_the_input(plain):
    # at a border, a 3x3 window covers two rows of the input instead of three: 3 * size - 2 in total
    products = 16 * 8 * (3 * 10 - 2) * (3 * 12 - 2)
    assert plain.cost("hlo").flops == 2 * products + 2 * RESULT


def test_all_options_compute_the_same(plain, unfused, own_convolution):
    rng = np.random.default_rng(0)
    arguments = [rng.standard_normal(argument.shape).astype(np.float32) for argument in plain.arguments]
    expected = np.maximum(conv2d(*arguments, 1, 1), 0)
    for compiled in (plain.compiled, unfused.compiled, own_convolution.compiled):
        np.testing.assert_allclose(compiled(*arguments), expected, rtol=1e-4, atol=1e-5)


def test_layouts_are_those_of_the_source_before_optimisation_and_without_canonicalisation(plain, own_convolution):
    (before,) = plain.layouts("hlo")
    assert (before.x, before.w, before.y) == ("NCHW", "OIHW", "NCHW")
    (after,) = own_convolution.layouts()
    assert (after.x, after.w, after.y) == ("NCHW", "OIHW", "NCHW")


def test_layouts_of_a_module():
    module = parse("""HloModule m

ENTRY main {
  x = f32[1,8,10,12]{3,2,1,0} parameter(0)
  w = f32[16,8,3,3]{3,2,1,0} parameter(1)
  names = f32[1,10,12,8]{2,1,3,0} transpose(x), dimensions={0,2,3,1}
  nhwc = f32[1,10,12,8]{3,2,1,0} copy(names)
  hwio = f32[3,3,8,16]{3,2,1,0} transpose(w), dimensions={2,3,1,0}
  ROOT y = f32[1,10,12,16]{3,2,1,0} convolution(nhwc, hwio), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
}
""")
    assert convolutions(module) == [ConvolutionLayout("y", "NHWC", "HWIO", "NHWC")]


def test_single_arrays_are_data_and_trees_are_weights():
    x = np.ones(3, np.float32)
    assert view(lambda tree, x, unread: x + tree["a"], {"a": x, "b": x}, x, x).data == (2, 3)
    assert view(lambda tree: tree["a"], {"a": x, "b": x}).data == (0, 1)


@pytest.mark.parametrize(
    ("call", "message"),
    [
        (lambda: view(jnp.add, np.ones(3), np.ones(4)), "rejected"),
        (lambda: view(lambda x: x if x > 0 else -x, 1.0), "rejected"),
        (lambda: view(jnp.sin, 1.0, options={"nonsense": 1}).compiled, "rejected"),
        (lambda: view(jnp.sin, 1.0).module("mhlo"), "unknown stage"),
    ],
)
def test_errors_of_jax_are_raised_as_xla_errors(call, message):
    with pytest.raises(XlaError, match=message):
        call()


def test_errors_of_the_function_itself_pass_through():
    x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((1, 3, 4, 4), (2, 4, 1, 1)))
    with pytest.raises(KernelError):
        view(conv2d, x, w)
