"""The forms of a function: a convolution with bias and relu, of which all is known, and what XLA may not change."""

import re

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.errors import KernelError, XlaError
from mlhood.jaxlab.operators.resnet import conv2d
from mlhood.jaxlab.xla.hlo import parse
from mlhood.jaxlab.xla.layout import Layout, convolutions, moves
from mlhood.jaxlab.xla.views import OWN_CONVOLUTION, view

RESULT = 16 * 10 * 12
ARGUMENTS = 8 * 10 * 12 + 16 * 8 * 9 + 16


def test_the_texts_are_what_jax_and_xla_write(plain):
    assert plain.jaxpr.count("conv_general_dilated[") == 1
    assert plain.stablehlo.count("stablehlo.convolution(") == 1
    assert plain.hlo.startswith("HloModule")
    assert plain.optimized.startswith("HloModule")
    assert "conftest" not in plain.optimized
    assert repr(plain) == "View('conv_bias_relu', 3 arguments)"


def test_weights_that_a_function_holds_itself_are_not_written_out():
    weights = np.random.default_rng(0).standard_normal((100, 100)).astype(np.float32)
    one = view(lambda x: x @ weights, np.ones((2, 100), np.float32))
    assert max(len(one.stablehlo), len(one.hlo), len(one.optimized)) < 5000
    for stage, product in (("stablehlo", "dot_general"), ("hlo", "dot")):
        assert (one.operations(stage)[product], one.operations(stage)["constant"]) == (1, 1)


def test_operations_before_xla_are_those_that_were_written(plain):
    assert plain.operations("stablehlo") == {
        "broadcast_in_dim": 4, "return": 2, "add": 1, "call": 1, "constant": 1, "convolution": 1, "maximum": 1,
    }  # fmt: skip
    found = plain.operations("hlo")
    assert [found[code] for code in ("convolution", "add", "maximum")] == [1, 1, 1]
    assert plain.fusions()
    assert plain.operations("optimized")["convolution"] == 1


def test_bias_and_relu_are_one_loop_unless_fusion_is_off(plain, unfused):
    assert any({"add", "maximum"} <= set(codes) for codes in plain.fusions().values())
    assert not any({"add", "maximum"} <= set(codes) for codes in unfused.fusions().values())
    assert unfused.cost().bytes > plain.cost().bytes


def test_xla_counts_the_multiplications_that_meet_the_input(plain):
    # of rows at the border a 3x3 window meets two of three, so 3 * size - 2 in all
    products = 16 * 8 * (3 * 10 - 2) * (3 * 12 - 2)
    assert plain.cost("hlo").flops == 2 * products + 2 * RESULT


def test_memory_holds_arguments_and_results(plain):
    memory = plain.memory()
    assert (memory.arguments, memory.results) == (4 * ARGUMENTS, 4 * RESULT)
    assert memory.shared == 0


def test_all_forms_compute_the_same(plain, unfused, own):
    rng = np.random.default_rng(0)
    shapes = [one.shape for one in plain.arguments]
    arguments = [rng.standard_normal(shape).astype(np.float32) for shape in shapes]
    expected = np.maximum(conv2d(*arguments, 1, 1), 0)
    for one in (plain, unfused, own):
        np.testing.assert_allclose(one.compiled(*arguments), expected, rtol=1e-4, atol=1e-5)


def test_the_llvm_ir_of_a_convolution_is_the_seven_loops_of_its_definition(own):
    found = own.llvm_ir()
    name = next(name for name in found if name.startswith("conv"))
    assert len(re.findall(r"^[\w.]+\.loop_header\.\w+(?:\.\d+)?:", found[name], re.MULTILINE)) == 7
    assert "fmul" in found[name] or "llvm.fma" in found[name]
    assert found[name] != own.llvm_ir(optimized=True)[name]
    assert not any(code == "convolution" for codes in own.fusions().values() for code in codes)


def test_a_function_without_work_has_no_llvm_ir():
    with pytest.raises(XlaError, match="no LLVM IR") as caught:
        view(lambda x: x, np.ones(3, np.float32)).llvm_ir()
    assert "OWN_CONVOLUTION" in str(caught.value)


def test_layouts_before_xla_are_ours_and_stay_so_where_it_may_not_change_them(plain, own):
    (before,) = plain.layouts("hlo")
    assert (before.x, before.w, before.y) == ("NCHW", "OIHW", "NCHW")
    assert plain.moves("hlo") == []
    (kept,) = own.layouts()
    assert (kept.x, kept.w, kept.y) == ("NCHW", "OIHW", "NCHW")
    assert own.moves() == []


def test_layouts_and_moves_of_a_module():
    module = parse("""HloModule m

ENTRY main {
  x = f32[1,8,10,12]{3,2,1,0} parameter(0)
  w = f32[16,8,3,3]{3,2,1,0} parameter(1)
  names = f32[1,10,12,8]{2,1,3,0} transpose(x), dimensions={0,2,3,1}
  nhwc = f32[1,10,12,8]{3,2,1,0} copy(names)
  hwio = f32[3,3,8,16]{3,2,1,0} transpose(w), dimensions={2,3,1,0}
  y = f32[1,10,12,16]{3,2,1,0} convolution(nhwc, hwio), window={size=3x3 pad=1_1x1_1}, dim_labels=b01f_01io->b01f
  flat = f32[10,12,1,16]{3,1,0,2} transpose(y), dimensions={1,2,0,3}
  ROOT z = f32[10,12,1,16]{3,1,0,2} negate(flat)
}
""")
    assert convolutions(module) == [Layout("y", "NHWC", "HWIO", "NHWC")]
    assert [(one.name, one.where, one.bytes) for one in moves(module)] == [
        ("nhwc", "main", 2 * 4 * 960),
        ("hwio", "main", 2 * 4 * 1152),
    ]


def test_arguments_alone_are_data_and_trees_are_weights():
    x = np.ones(3, np.float32)
    assert view(lambda tree, x, unread: x + tree["a"], {"a": x, "b": x}, x, x).data == (2, 3)
    assert view(lambda tree: tree["a"], {"a": x, "b": x}).data == (0, 1)


@pytest.mark.parametrize(
    ("make", "what"),
    [
        (lambda: view(jnp.add, np.ones(3), np.ones(4)), "refuses"),
        (lambda: view(lambda x: x if x > 0 else -x, 1.0), "refuses"),
        (lambda: view(jnp.sin, 1.0, options={"nonsense": 1}).compiled, "refuses"),
        (lambda: view(jnp.sin, 1.0).module("mhlo"), "no such stage"),
    ],
)
def test_what_jax_refuses_is_said_in_our_words(make, what):
    with pytest.raises(XlaError, match=what):
        make()


def test_errors_of_the_function_itself_stay_what_they_are():
    x, w = (jax.ShapeDtypeStruct(shape, "float32") for shape in ((1, 3, 4, 4), (2, 4, 1, 1)))
    with pytest.raises(KernelError):
        view(conv2d, x, w, options=OWN_CONVOLUTION)
