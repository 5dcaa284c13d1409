"""Depthwise convolution and pooling of blocked activations, against torch."""

import numpy as np
import pytest
import torch

from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.kernels import native, windows
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64, available, host
from mlhood.kernels.geometry import geometry, stored_shape
from mlhood.kernels.windows import Windows, WindowVariant, build
from tests.kernels.guards import Guarded

# channels, height, width, kernel, stride, padding, dilation
SHAPES = [
    (16, 9, 11, (3, 3), 1, 1, 1),
    (13, 9, 20, (5, 3), 2, (2, 1, 0, 3), 1),
    (8, 4, 3, (3, 3), 1, (2, 2, 2, 2), 2),
    (40, 1, 1, (1, 1), 1, 0, 1),
    (9, 2, 30, (1, 7), (1, 3), (0, 3, 0, 3), 1),
]


def run(call, x, shape, target, threads=1, **more):
    blocked = to_blocked(x, target.lanes)
    y = Guarded(stored_shape(shape, "blocked", target.lanes))
    arrays = {name: to_blocked(array, target.lanes) for name, array in more.items()}
    native.run(call, threads, x=Guarded(blocked.shape, blocked).array, y=y.array, **arrays)
    y.check()
    return to_plain(y.array, shape[1])


@pytest.mark.parametrize("target", available(), ids=lambda target: target.name)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_depthwise_convolution_agrees_with_torch(shape, target):
    channels, high, wide, kernel, stride, padding, dilation = shape
    draw = np.random.default_rng(channels)
    x = draw.standard_normal((2, channels, high, wide), np.float32)
    w, bias = draw.standard_normal((channels, 1, *kernel), np.float32), draw.standard_normal(channels, np.float32)
    g = geometry(x.shape, w.shape, stride, padding, dilation, channels)
    top, left, bottom, right = g.padding
    padded = torch.nn.functional.pad(torch.tensor(x), (left, right, top, bottom))
    expected = torch.nn.functional.conv2d(
        padded, torch.tensor(w), torch.tensor(bias), g.stride, dilation=g.dilation, groups=channels
    ).numpy()
    residual = draw.standard_normal(expected.shape).astype(np.float32)
    results = []
    for threads in (1, 2):
        steps = (("Clip", (0.0, 4.0), (0,)),)
        call = windows.depthwise(g, w, bias, threads=threads, target=target, epilogue=steps)
        results.append(run(call, x, expected.shape, target, threads, residual=residual))
    np.testing.assert_allclose(results[0], np.clip(expected + residual, 0, 4), rtol=1e-4, atol=1e-5)
    np.testing.assert_array_equal(*results)


def pool(x, kernel, stride, padding, operation, out, target, **options):
    sides = (*padding, *padding)
    planes = x.shape[0] * -(-x.shape[1] // target.lanes)
    over = Windows(planes, x.shape[2:], out[2:], kernel, stride, (1, 1), sides)
    return run(windows.pool(over, operation, target=target, **options), x, out, target, options.get("threads", 1))


@pytest.mark.parametrize("target", available(), ids=lambda target: target.name)
@pytest.mark.parametrize(
    ("kernel", "stride", "padding"),
    [((3, 3), (2, 2), (1, 1)), ((2, 2), (2, 2), (0, 0)), ((3, 5), (1, 2), (1, 2)), ((7, 9), (1, 1), (0, 0))],
)
def test_pooling_agrees_with_torch(kernel, stride, padding, target):
    x = np.random.default_rng(3).standard_normal((2, 11, 7, 9)).astype(np.float32)
    x[0, 2, 3, 3], x[1, 0, 0, 0], x[1, 10, 6, 8] = np.nan, np.inf, -np.inf
    tensor = torch.tensor(x)
    expected = torch.nn.functional.max_pool2d(tensor, kernel, stride, padding).numpy()
    np.testing.assert_array_equal(pool(x, kernel, stride, padding, "maximum", expected.shape, target), expected)
    for count_pads in (False, True):
        expected = torch.nn.functional.avg_pool2d(tensor, kernel, stride, padding, count_include_pad=count_pads).numpy()
        actual = pool(x, kernel, stride, padding, "mean", expected.shape, target, count_pads=count_pads)
        np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-6)


def test_threads_give_the_same_bits():
    x = np.random.default_rng(4).standard_normal((1, 8, 31, 17)).astype(np.float32)
    results = [pool(x, (3, 3), (2, 2), (1, 1), "mean", (1, 8, 16, 9), host(), threads=threads) for threads in (1, 2, 3)]
    assert all((result == results[0]).all() for result in results)


@pytest.mark.parametrize("operation", ["convolution", "maximum", "mean"])
def test_the_code_compiles_for_arm(operation):
    variant = WindowVariant(operation, (3, 3), (2, 2), (1, 1), 8)
    assert "v0." in jit.compile_ir(build(AARCH64, variant), AARCH64, assembly=True)


@pytest.mark.parametrize(("count", "pixels"), [(0, 1), (1, 1), (5, 5), (12, 6), (14, 7), (26, 8), (56, 8)])
def test_few_pixels_of_a_row_are_left_to_be_computed_on_their_own(count, pixels):
    assert windows.pixels_at_once(count, 8) == pixels
