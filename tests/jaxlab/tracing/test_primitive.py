"""The primitive against the compiler's quantisation, and each of its rules against its definition."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
from jax.sharding import AxisType, PartitionSpec

from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.quantize.schema import dequantize_array, quantize_array
from mlhood.errors import XlaError
from mlhood.jaxlab.tracing.primitive import decomposed, fake_quantize, fake_quantize_p

# multiples of 1/4, so ties too, inside int8's range and outside of it for a scale of 1
QUARTERS = np.arange(-135, 135, 0.25, dtype=np.float32)


def normal(*shape, seed=0):
    return 5 * np.random.default_rng(seed).standard_normal(shape, np.float32)


def in_numpy(x, scale):
    return scale * np.clip(np.rint(x / scale), -128, 127)


@pytest.mark.parametrize("scale", [1.0, 0.5, 2.0**-7])
def test_values_match_the_compilers_int8(scale):
    x = QUARTERS * np.float32(scale)
    quantization = Quantization((scale,), (0,))
    expected = dequantize_array(quantize_array(x, quantization, "int8"), quantization)
    for function in (fake_quantize, jax.jit(fake_quantize)):
        np.testing.assert_array_equal(function(x, scale), expected)


def test_values_match_the_compilers_with_a_scale_per_channel():
    x, scales = normal(2, 3, 4, 4), np.array([0.013, 0.05, 0.11], np.float32)
    scale = scales[:, None, None]
    quantization = Quantization(tuple(scales.tolist()), (0, 0, 0), 1)
    expected = dequantize_array(quantize_array(x, quantization, "int8"), quantization)
    steps = x.astype(np.float64) / scale
    no_tie = np.abs(steps - np.floor(steps) - 0.5) > 1e-4  # the compiler divides in float64: near ties it may differ
    assert no_tie.mean() > 0.99
    np.testing.assert_allclose(np.asarray(fake_quantize(x, scale))[no_tie], expected[no_tie], rtol=1e-6)


@pytest.mark.parametrize("dtype", ["float32", "float16", "bfloat16"])
def test_shape_and_dtype_are_those_of_x_and_the_jaxpr_has_its_name(dtype):
    x = jnp.asarray(normal(4, 3), dtype)
    (equation,) = jax.make_jaxpr(fake_quantize_p.bind)(x, x[0]).eqns
    assert str(equation.primitive) == "fake_quantize"
    for got in (fake_quantize(x, 0.1), jax.eval_shape(fake_quantize, x, 0.1)):
        assert got.shape == (4, 3)
        assert got.dtype == x.dtype


def test_the_lowering_rounds_and_divides():
    text = jax.jit(fake_quantize).lower(normal(4, 3), 0.1).as_text()
    assert "stablehlo.round_nearest_even" in text
    assert "stablehlo.divide" in text


@pytest.mark.parametrize("transform", [lambda f: f, jax.jit])
def test_gradients_are_those_of_the_straight_through_estimator(transform):
    inside = (QUARTERS >= -128) & (QUARTERS <= 127)
    dx, dscale = transform(jax.grad(lambda x, scale: fake_quantize(x, scale).sum(), (0, 1)))(QUARTERS, 1.0)
    np.testing.assert_array_equal(dx, inside)
    rounded = np.clip(np.rint(QUARTERS), -128, 127)
    np.testing.assert_allclose(dscale, np.where(inside, rounded - QUARTERS, rounded).sum(), rtol=1e-6)
    assert not jax.grad(lambda x: decomposed(x, 1.0).sum())(QUARTERS).any()  # hence the rule of its own


def test_each_channels_scale_has_a_derivative_of_its_own():
    x, scale, weights = normal(2, 3, 4), np.array([0.01, 0.05, 0.1], np.float32)[:, None], normal(2, 3, 4, seed=1)
    got = jax.jit(jax.grad(lambda scale: (weights * fake_quantize(x, scale)).sum()))(scale)
    steps = x / scale
    quantized = np.clip(np.rint(steps), -128, 127)
    expected = (weights * np.where((steps >= -128) & (steps <= 127), quantized - steps, quantized)).sum((0, 2))
    np.testing.assert_allclose(got[:, 0], expected, rtol=1e-4)


def test_the_vjp_is_the_transpose_of_the_jvp():
    x, scale = normal(3, 4), np.float32(0.03)
    tangents, cotangent = (normal(3, 4, seed=1), np.float32(0.7)), normal(3, 4, seed=2)
    _, forward = jax.jit(lambda *tangents: jax.jvp(fake_quantize, (x, scale), tangents))(*tangents)
    backward = jax.jit(lambda cotangent: jax.vjp(fake_quantize, x, scale)[1](cotangent))(cotangent)
    products = [np.vdot(u, g) for u, g in zip(tangents, backward, strict=True)]
    np.testing.assert_allclose(np.vdot(cotangent, forward), sum(products), rtol=1e-5)


@pytest.mark.parametrize("axes", [(0, None), (None, 0), (0, 0), (2, None), (1, -1)])
@pytest.mark.parametrize("scale_shape", [(), (3, 1), (4,)])
def test_batching_matches_a_loop(axes, scale_shape):
    xs, scales = normal(5, 3, 4), np.abs(normal(5, *scale_shape, seed=1)) / 100 + np.float32(0.01)
    expected = [in_numpy(xs[0 if axes[0] is None else i], scales[0 if axes[1] is None else i]) for i in range(5)]
    operands = [a[0] if axis is None else np.moveaxis(a, 0, axis) for a, axis in zip((xs, scales), axes, strict=True)]
    batched = jax.vmap(fake_quantize, axes)
    np.testing.assert_allclose(jax.jit(batched)(*operands), np.stack(expected), rtol=1e-6)
    assert str(jax.make_jaxpr(batched)(*operands)).count("= fake_quantize ") == 1


def test_transformations_can_be_composed():
    x, scales = normal(5, 3, 4), np.array([0.01, 0.05, 0.1], np.float32)[:, None]

    def loss(x, scale):
        return (fake_quantize(x, scale) ** 2).sum()

    gradient = jax.jit(jax.grad(loss, (0, 1)))
    got = jax.jit(jax.vmap(jax.grad(loss, (0, 1)), (0, None)))(x, scales)
    for i in range(len(x)):
        for batched, expected in zip(got, gradient(x[i], scales), strict=True):
            np.testing.assert_allclose(batched[i], expected, rtol=1e-4, atol=1e-3)
    nested = jax.jit(jax.vmap(jax.vmap(fake_quantize, (None, 0)), (0, None)))(x, scales[:, 0])
    np.testing.assert_allclose(nested, in_numpy(x[:, None], scales[:, None]), rtol=1e-6)


def test_it_works_on_a_mesh():
    mesh = jax.make_mesh((1,), ("data",), axis_types=(AxisType.Auto,))
    sharded, replicated = PartitionSpec("data"), PartitionSpec()

    def loss(x, scale):
        return jax.lax.psum((fake_quantize(x, scale) ** 2).sum(), "data")

    x, scale = normal(4, 3), np.float32(0.05)
    mapped = jax.shard_map(loss, mesh=mesh, in_specs=(sharded, replicated), out_specs=replicated)
    got = jax.jit(jax.grad(mapped, (0, 1)))(x, scale)
    expected = jax.jit(jax.grad(lambda x, scale: (fake_quantize(x, scale) ** 2).sum(), (0, 1)))(x, scale)
    for gradient, wanted in zip(got, expected, strict=True):
        np.testing.assert_allclose(gradient, wanted, rtol=1e-4)


@pytest.mark.parametrize("call", [fake_quantize, fake_quantize_p.bind, jax.jit(fake_quantize_p.bind)])
def test_invalid_shapes_and_dtypes_are_rejected(call):
    x = jnp.asarray(normal(2, 3))
    for scale in (jnp.ones(2), jnp.ones((2, 2, 3)), jnp.ones((2, 1, 1))):
        with pytest.raises(XlaError, match="does not broadcast") as caught:
            call(x, scale)
        assert "[2, 3]" in str(caught.value)
    with pytest.raises(XlaError, match="for floats"):
        call(jnp.arange(3), jnp.array(1))
