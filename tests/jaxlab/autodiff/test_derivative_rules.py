"""Every rule, both ways: finite differences, <v, J u> = <J^T v, u>, and JAX's own derivative of the same operator."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest
import torch

from mlhood.jaxlab.autodiff import JVPS, NUMPY, RULES
from mlhood.jaxlab.autodiff.rules import unbroadcast
from mlhood.jaxlab.operators import with_jax

DRAW = np.random.default_rng(0)


def drawn(*shapes):
    return [DRAW.standard_normal(shape) for shape in shapes]


def positive(*shapes):
    return [1 + np.abs(one) for one in drawn(*shapes)]


def statistics(channels):
    mean, weight, bias = drawn(*[(channels,)] * 3)
    return [mean, *positive((channels,)), weight, bias]


IMAGE = (2, 3, 7, 6)
# operator, inputs, attributes
CASES = [
    *((op, drawn(a, b), {}) for op in ("add", "sub", "mul") for a, b in [((2, 3), (2, 3)), ((4, 1, 3), (2, 1))]),
    ("add", drawn((), (2, 3)), {}),
    ("mul", drawn((1, 3), (2, 3)), {}),
    ("div", drawn((2, 3)) + positive((1, 3)), {}),
    ("div", drawn(()) + positive((2, 3)), {}),
    *((op, drawn((3, 4)), {}) for op in ("neg", "exp", "tanh", "sigmoid", "relu", "softmax")),
    ("softmax", drawn((2, 2, 3)), {}),
    ("log", positive((3, 4)), {}),
    *((op, drawn((2, 3, 4)), {"axis": axis}) for op in ("sum", "mean") for axis in (None, 1, -1, (0, 2))),
    ("reshape", drawn((2, 3, 4)), {"shape": (2, -1)}),
    ("dense", drawn((2, 3), (4, 3), (4,)), {}),
    ("conv2d", drawn(IMAGE, (4, 3, 3, 3)), {"stride": 1, "padding": 0}),
    ("conv2d", drawn(IMAGE, (4, 3, 3, 3), (4,)), {"stride": 2, "padding": 1}),
    ("conv2d", drawn(IMAGE, (2, 3, 1, 1)), {"stride": 2, "padding": 0}),
    ("conv2d", drawn(IMAGE, (2, 3, 3, 2), (2,)), {"stride": (3, 2), "padding": (2, 0)}),
    ("batch_norm", drawn(IMAGE) + statistics(3), {"eps": 1e-5}),
    ("max_pool", drawn(IMAGE), {"kernel": 3, "stride": 2, "padding": 1}),
    ("max_pool", drawn(IMAGE), {"kernel": 2, "stride": 2, "padding": 0}),
    ("global_average_pool", drawn(IMAGE), {}),
    ("cross_entropy", [*drawn((4, 5)), np.array([0, 4, 4, 2])], {}),
]
NAMES = [f"{op}-{i}" for i, (op, _, _) in enumerate(CASES)]
over_cases = pytest.mark.parametrize(("op", "inputs", "attributes"), CASES, ids=NAMES)


def reals(inputs):
    return [one.dtype.kind == "f" for one in inputs]


def directions(inputs):
    return [DRAW.standard_normal(one.shape) if real else None for one, real in zip(inputs, reals(inputs), strict=True)]


def moved(inputs, tangents, step):
    return [one if u is None else one + step * u for one, u in zip(inputs, tangents, strict=True)]


def test_every_operator_has_both_rules_and_a_case():
    assert NUMPY.keys() == RULES.keys() == JVPS.keys() == {op for op, _, _ in CASES}


@over_cases
def test_the_forward_rule_is_the_limit_of_differences(op, inputs, attributes):
    tangents, step = directions(inputs), 1e-6
    upper, lower = (NUMPY[op](*moved(inputs, tangents, sign * step), **attributes) for sign in (1, -1))
    found = JVPS[op](NUMPY[op](*inputs, **attributes), inputs, tangents, **attributes)
    np.testing.assert_allclose(found, (upper - lower) / (2 * step), rtol=1e-5, atol=1e-7)


@over_cases
def test_one_rule_is_the_others_transpose(op, inputs, attributes):
    assert_transposed(op, inputs, attributes)


@pytest.mark.parametrize("seed", range(12))
def test_so_it_is_for_shapes_that_nobody_chose(seed):
    rng = np.random.default_rng(seed)
    n, c, f, kernel, stride, padding = (int(one) for one in rng.integers(1, 4, 6))
    high, wide = (int(one) for one in rng.integers(kernel, 9, 2))
    x = rng.standard_normal((n, c, high, wide))
    weights = rng.standard_normal((f, c, kernel, kernel)), rng.standard_normal(f)
    assert_transposed("conv2d", [x, *weights], {"stride": stride, "padding": padding})
    window = {"kernel": kernel, "stride": stride, "padding": min(padding, kernel // 2)}
    assert_transposed("max_pool", [np.round(x)], window)  # with ties

    shape = rng.integers(1, 4, rng.integers(1, 5))
    narrow = np.where(rng.random(shape.size) < 0.5, 1, shape)[rng.integers(0, shape.size + 1) :]
    for op in ("add", "sub", "mul", "div"):
        pair = [rng.standard_normal(shape), 1 + rng.random(narrow)]
        assert_transposed(op, pair, {})
        assert_transposed(op, [1 + one**2 for one in reversed(pair)], {})


def assert_transposed(op, inputs, attributes):
    y, tangents = NUMPY[op](*inputs, **attributes), directions(inputs)
    v = DRAW.standard_normal(y.shape)
    gradients = RULES[op](v, y, *inputs, **attributes)
    assert [one is not None for one in gradients] == reals(inputs)
    for one, given in zip(gradients, inputs, strict=True):
        assert one is None or one.shape == given.shape
    forward = (v * JVPS[op](y, inputs, tangents, **attributes)).sum()
    backward = sum((g * u).sum() for g, u in zip(gradients, tangents, strict=True) if u is not None)
    assert forward == pytest.approx(backward, rel=1e-10)


def of_jax(op):
    """Return JAX's function of this name: the one of `with_jax`, or jnp's or jax.nn's."""
    own = {
        "cross_entropy": lambda x, labels: -jnp.take_along_axis(jax.nn.log_softmax(x), labels[:, None], 1).mean(),
        "sub": jnp.subtract, "mul": jnp.multiply, "div": jnp.divide, "neg": jnp.negative, "sum": jnp.sum,
        "mean": jnp.mean, "reshape": jnp.reshape, "sigmoid": jax.nn.sigmoid,
    }  # fmt: skip
    return own.get(op) or getattr(with_jax, op, None) or getattr(jnp, op)


@over_cases
def test_the_reverse_rule_is_jaxs_own_and_keeps_float32(op, inputs, attributes):
    given = [one.astype(np.float32 if real else np.int32) for one, real in zip(inputs, reals(inputs), strict=True)]
    y = NUMPY[op](*given, **attributes)
    v = DRAW.standard_normal(y.shape).astype(np.float32)

    @jax.jit
    def in_jax(v, *given):
        expected, back = jax.vjp(lambda *some: of_jax(op)(*some, **attributes), *given)
        return expected, back(v)

    expected, gradients = in_jax(v, *given)
    np.testing.assert_allclose(y, expected, rtol=1e-4, atol=1e-5)
    for mine, theirs in zip(RULES[op](v, y, *given, **attributes), gradients, strict=True):
        if mine is not None:
            np.testing.assert_allclose(mine, theirs, rtol=1e-4, atol=1e-4)
            assert mine.dtype == np.float32


@pytest.mark.parametrize(("kernel", "stride", "padding"), [(3, 2, 1), (2, 2, 0), (3, 1, 1)])
def test_of_equal_pixels_the_first_of_a_window_gets_all_as_in_jax_and_torch(kernel, stride, padding):
    x = DRAW.integers(0, 2, (2, 2, 6, 6)).astype(np.float32)  # most windows have ties
    y = NUMPY["max_pool"](x, kernel, stride, padding)
    g = DRAW.standard_normal(y.shape).astype(np.float32)
    (mine,) = RULES["max_pool"](g, y, x, kernel, stride, padding)

    _, back = jax.vjp(lambda one: with_jax.max_pool(one, kernel, stride, padding), x)
    np.testing.assert_allclose(mine, back(g)[0], atol=1e-6)
    known = torch.tensor(x, requires_grad=True)
    torch.nn.functional.max_pool2d(known, kernel, stride, padding).backward(torch.tensor(g))
    np.testing.assert_allclose(mine, known.grad.numpy(), atol=1e-6)


def test_at_zero_relu_has_no_slope_as_in_jax_and_torch():
    x = np.array([-1, 0, 2], np.float32)
    np.testing.assert_array_equal(RULES["relu"](np.ones(3, np.float32), x, x)[0], [0, 0, 1])
    np.testing.assert_array_equal(jax.grad(lambda one: with_jax.relu(one).sum())(x), [0, 0, 1])


def test_large_logits_do_not_overflow():
    logits, labels = np.array([[1000.0, 0.0], [-1000.0, 1000.0]]), np.array([0, 0])
    y = NUMPY["cross_entropy"](logits, labels)
    assert y == 1000
    np.testing.assert_allclose(RULES["cross_entropy"](1.0, y, logits, labels)[0], [[0, 0], [-0.5, 0.5]])
    assert NUMPY["sigmoid"](np.array(-1000.0)) == 0


def test_copies_add_up():
    np.testing.assert_array_equal(unbroadcast(np.ones((4, 2, 3)), (2, 1)), [[12], [12]])
    assert unbroadcast(np.ones((2, 3)), ()) == 6
    assert unbroadcast(np.ones((2, 0)), (2, 1)).shape == (2, 1)
