"""Operators in another layout compute the same, whichever layout they are called with."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.jaxlab.operators import layouts, no_jax
from mlhood.jaxlab.operators.layouts import Layout

LAYOUTS = [Layout("NHWC", "HWCF", "x @ w"), Layout("CHWN", "CHWF", "w @ x"), Layout("HWNC", "HWFC", "w.T @ x")]


def draw(*shape: int) -> np.ndarray:
    return np.random.default_rng(1).standard_normal(shape).astype(np.float32)


def ordered(array: np.ndarray, axes: str, order: str) -> np.ndarray:
    return np.einsum(f"{axes}->{order}", array)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.images)
def test_images_and_filters_are_those_of_the_layout(layout):
    there = layouts.adapted(no_jax, layouts.STANDARD, layout)
    x, w, bias = draw(2, 3, 7, 6), draw(4, 3, 3, 2), draw(4)
    own_x, own_w = ordered(x, "NCHW", layout.images), ordered(w, "FCHW", layout.filters)
    want = ordered(no_jax.conv2d(x, w, bias, 2, 1), "NCHW", layout.images)
    np.testing.assert_allclose(there.conv2d(own_x, own_w, bias, 2, 1), want, rtol=1e-5)
    np.testing.assert_array_equal(there.max_pool(own_x), ordered(no_jax.max_pool(x), "NCHW", layout.images))
    norm = draw(3), draw(3) ** 2, draw(3), draw(3)
    want = ordered(no_jax.batch_norm(x, *norm), "NCHW", layout.images)
    np.testing.assert_allclose(there.batch_norm(own_x, *norm), want, rtol=1e-5)
    order = "".join(axis for axis in layout.images if axis in "NC")
    want = ordered(no_jax.global_average_pool(x), "NC", order)
    np.testing.assert_allclose(there.global_average_pool(own_x), want, rtol=1e-5)


def test_dense_layers_are_those_of_the_layout():
    x, w, bias = draw(5, 3), draw(4, 3), draw(4)
    for product in ("x @ w.T", "x @ w", "w @ x", "w.T @ x"):
        there = layouts.adapted(no_jax, layouts.STANDARD, Layout(dense=product))
        own_x, own_w = x.T if product.endswith("x") else x, w.T if product in ("x @ w", "w.T @ x") else w
        got = there.dense(own_x, own_w, bias)
        np.testing.assert_allclose(got.T if product.endswith("x") else got, no_jax.dense(x, w, bias), rtol=1e-5)


@pytest.mark.parametrize("layout", LAYOUTS, ids=lambda layout: layout.images)
def test_there_and_back_is_the_same_and_copies_nothing(layout):
    seen = []
    watched = SimpleNamespace(**{**vars(no_jax), "relu": lambda x: seen.append(x) or no_jax.relu(x)})
    own = layouts.adapted(no_jax, layouts.STANDARD, layout)
    back = layouts.adapted(SimpleNamespace(**{**vars(own), "relu": watched.relu}), layout)
    x, w = draw(2, 3, 7, 6), draw(4, 3, 3, 2)
    np.testing.assert_allclose(back.conv2d(x, w, padding=1), no_jax.conv2d(x, w, padding=1), rtol=1e-5)
    np.testing.assert_array_equal(back.relu(x), no_jax.relu(x))
    assert seen[0] is x
    assert layouts.adapted(no_jax, layouts.STANDARD) is no_jax
