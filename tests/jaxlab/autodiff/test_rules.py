"""Every VJP rule against JAX's derivative of the same operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from mlhood.jaxlab.autodiff import NUMPY, RULES
from mlhood.jaxlab.autodiff.rules import unbroadcast
from mlhood.jaxlab.operators import with_jax

RNG = np.random.default_rng(0)


def normal(*shapes):
    return [RNG.standard_normal(shape) for shape in shapes]


def positive(*shapes):
    return [1 + np.abs(array) for array in normal(*shapes)]


def statistics(channels):
    mean, weight, bias = normal(*[(channels,)] * 3)
    return [mean, *positive((channels,)), weight, bias]


IMAGE = (2, 3, 7, 6)
# operator, inputs, attributes
CASES = [
    *((op, normal(a, b), {}) for op in ("add", "sub", "mul") for a, b in [((2, 3), (2, 3)), ((4, 1, 3), (2, 1))]),
    ("add", normal((), (2, 3)), {}),
    ("mul", normal((1, 3), (2, 3)), {}),
    ("div", normal((2, 3)) + positive((1, 3)), {}),
    ("div", normal(()) + positive((2, 3)), {}),
    *((op, normal((3, 4)), {}) for op in ("neg", "exp", "tanh", "sigmoid", "relu", "softmax")),
    ("softmax", normal((2, 2, 3)), {}),
    ("log", positive((3, 4)), {}),
    *((op, normal((2, 3, 4)), {"axis": axis}) for op in ("sum", "mean") for axis in (None, 1, -1, (0, 2))),
    ("reshape", normal((2, 3, 4)), {"shape": (2, -1)}),
    ("dense", normal((2, 3), (4, 3), (4,)), {}),
    ("conv2d", normal(IMAGE, (4, 3, 3, 3)), {"stride": 1, "padding": 0}),
    ("conv2d", normal(IMAGE, (4, 3, 3, 3), (4,)), {"stride": 2, "padding": 1}),
    ("conv2d", normal(IMAGE, (2, 3, 1, 1)), {"stride": 2, "padding": 0}),
    ("conv2d", normal(IMAGE, (2, 3, 3, 2), (2,)), {"stride": (3, 2), "padding": (2, 0)}),
    ("batch_norm", normal(IMAGE) + statistics(3), {"eps": 1e-5}),
    ("max_pool", normal(IMAGE), {"kernel": 3, "stride": 2, "padding": 1}),
    ("max_pool", normal(IMAGE), {"kernel": 2, "stride": 2, "padding": 0}),
    ("global_average_pool", normal(IMAGE), {}),
    ("cross_entropy", [*normal((4, 5)), np.array([0, 4, 4, 2])], {}),
]
NAMES = [f"{op}-{i}" for i, (op, _, _) in enumerate(CASES)]
over_cases = pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=NAMES)


def is_float(inputs):
    return [x.dtype.kind == "f" for x in inputs]


def test_every_operator_has_a_rule_and_a_case():
    assert NUMPY.keys() == RULES.keys() == {op for op, _, _ in CASES}


IN_JAX = {
    "cross_entropy": lambda x, labels: -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean(),
    "sub": jnp.subtract,
    "mul": jnp.multiply,
    "div": jnp.divide,
    "neg": jnp.negative,
    "sum": jnp.sum,
    "mean": jnp.mean,
    "reshape": jnp.reshape,
    "sigmoid": jax.nn.sigmoid,
}


def assert_vjp_matches(op, inputs, attributes):
    operator = IN_JAX.get(op) or getattr(with_jax, op, None) or getattr(jnp, op)
    inputs = [x.astype(np.float32 if real else np.int32) for x, real in zip(inputs, is_float(inputs), strict=True)]
    y = NUMPY[op](*inputs, **attributes)
    v = RNG.standard_normal(y.shape).astype(np.float32)

    @jax.jit
    def in_jax(v, *inputs):
        expected, vjp = jax.vjp(lambda *primals: operator(*primals, **attributes), *inputs)
        return expected, vjp(v)

    expected, expected_gradients = in_jax(v, *inputs)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    gradients = RULES[op](v, y, *inputs, **attributes)
    assert [g is not None for g in gradients] == is_float(inputs)
    for got, wanted, x in zip(gradients, expected_gradients, inputs, strict=True):
        if got is not None:
            np.testing.assert_allclose(got, wanted, rtol=1e-4, atol=1e-4)
            assert (got.shape, got.dtype) == (x.shape, np.float32)


@over_cases
def test_the_vjp_matches_jax(op, inputs, attributes):
    assert_vjp_matches(op, inputs, attributes)


@pytest.mark.parametrize("seed", range(4))
def test_vjps_match_jax_for_random_shapes(seed):
    rng = np.random.default_rng(seed)
    n, c, f, kernel, stride, padding = map(int, rng.integers(1, 4, 6))
    height, width = map(int, rng.integers(kernel, 9, 2))
    x = rng.standard_normal((n, c, height, width))
    weights = rng.standard_normal((f, c, kernel, kernel)), rng.standard_normal(f)
    assert_vjp_matches("conv2d", [x, *weights], {"stride": stride, "padding": padding})
    window = {"kernel": kernel, "stride": stride, "padding": min(padding, kernel // 2)}
    assert_vjp_matches("max_pool", [np.round(x)], window)  # with ties

    shape = rng.integers(1, 4, rng.integers(1, 5))
    narrow = np.where(rng.random(shape.size) < 0.5, 1, shape)[rng.integers(0, shape.size + 1) :]
    for op in ("add", "sub", "mul", "div"):
        pair = [rng.standard_normal(shape), 1 + rng.random(narrow)]
        assert_vjp_matches(op, pair, {})
        assert_vjp_matches(op, [1 + x**2 for x in reversed(pair)], {})


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_the_gradient_goes_to_the_first_of_equal_maxima_as_in_jax_and_torch(kernel, stride, padding):
    x = RNG.integers(0, 2, (2, 2, 6, 6)).astype(np.float32)  # most windows have ties
    y = NUMPY["max_pool"](x, kernel, stride, padding)
    g = RNG.standard_normal(y.shape).astype(np.float32)
    (got,) = RULES["max_pool"](g, y, x, kernel, stride, padding)

    _, vjp = jax.vjp(lambda x: with_jax.max_pool(x, kernel, stride, padding), x)
    np.testing.assert_allclose(got, vjp(g)[0], atol=1e-6)
    tensor = torch.tensor(x, requires_grad=True)
    torch.nn.functional.max_pool2d(tensor, kernel, stride, padding).backward(torch.tensor(g))
    np.testing.assert_allclose(got, tensor.grad.numpy(), atol=1e-6)


def test_the_derivative_of_relu_at_zero_is_zero_as_in_jax_and_torch():
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_array_equal(RULES["relu"](np.ones(3, np.float32), x, x)[0], [0, 0, 1])
    np.testing.assert_array_equal(jax.grad(lambda x: with_jax.relu(x).sum())(x), [0, 0, 1])


def test_large_logits_do_not_overflow():
    logits, labels = np.array([[1000.0, 0.0], [-1000.0, 1000.0]]), np.array([0, 0])
    y = NUMPY["cross_entropy"](logits, labels)
    assert y == 1000
    np.testing.assert_allclose(RULES["cross_entropy"](1.0, y, logits, labels)[0], [[0, 0], [-0.5, 0.5]])
    assert NUMPY["sigmoid"](np.array(-1000.0)) == 0


def test_unbroadcasting_sums_over_copies():
    np.testing.assert_array_equal(unbroadcast(np.ones((4, 2, 3)), (2, 1)), [[12], [12]])
    assert unbroadcast(np.ones((2, 3)), ()) == 6
    assert unbroadcast(np.ones((2, 0)), (2, 1)).shape == (2, 1)
