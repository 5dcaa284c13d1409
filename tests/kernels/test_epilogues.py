"""Steps in the epilogues of kernels: on every processor the bits of clamping, and those of a loop of its own."""

import math

import numpy as np
import pytest

from mlhood.compiler.operators.blocked import to_blocked
from mlhood.kernels import elementwise, native, product, windows, winograd
from mlhood.kernels.codegen.direct_kernel import DirectVariant
from mlhood.kernels.direct import Direct
from mlhood.kernels.direct_variants import choose
from mlhood.kernels.geometry import geometry, stored_shape
from mlhood.kernels.product import ProductSizes
from tests.kernels.guards import Guarded

RELU = (("Relu", (), (0,)),)
SILU = (("Sigmoid", (), (0,)), ("Mul", (), (0, 1)))
CLIP = (0.0, math.inf)


def draw(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape, np.float32)


def run_product(target, clip=None, epilogue=()):
    sizes, c = ProductSizes(19, 37, 21), Guarded((19, 37))
    call = product.prepare(sizes, draw(21, 37, seed=1), draw(37, seed=2), clip, target=target, epilogue=epilogue)
    native.run(call, a=draw(19, 21), c=c.array)
    c.check()
    return c.array


def run_direct(target, clip=None, epilogue=()):
    """Return results for channels and for pixels in the lanes; the former has blocks of k, so partial sums."""
    results = []
    for channels, filters, groups in ((600, 11, 1), (6, 6, 6)):
        g = geometry((1, channels, 5, 9), (filters, channels // groups, 3, 3), 1, 1, 1, groups)
        w, bias = draw(filters, channels // groups, 3, 3, seed=1), draw(filters, seed=2)
        y = Guarded(g.out_shape)
        convolution = Direct(g, w, bias, clip, target, epilogue=epilogue)
        convolution(draw(1, channels, 5, 9), draw(*g.out_shape, seed=3), y.array)
        y.check()
        results.append(y.array.ravel())
    return np.concatenate(results)


def run_blocked(make, groups):
    """Return a function that runs a blocked convolution whose calls `make` prepares."""

    def run(target, clip=None, epilogue=()):
        channels = 20 if groups > 1 else 32
        g = geometry((1, channels, 6, 7), (channels, channels // groups, 3, 3), 1, 1, 1, groups)
        w, y = (
            draw(channels, channels // groups, 3, 3, seed=1),
            Guarded(stored_shape(g.out_shape, "blocked", target.lanes)),
        )
        calls = make(g, w, draw(channels, seed=2), clip, target, epilogue)
        x, z = (to_blocked(draw(*g.out_shape, seed=seed), target.lanes) for seed in (0, 3))
        operands = {"x": x, "y": y.array, "residual": z, "nonfinite": np.zeros(1, np.int64)}
        sizes = {name: size for call in calls for name, size in call.workspace.items()}
        operands |= {name: np.zeros(size // 4, np.float32) for name, size in sizes.items()}
        for call in calls:
            bare = native.NativeCall(call.kernel, call.words, call.operands, {}, call.keep)
            native.run(bare, **{name: operands[name] for name in call.operands})
        y.check()
        return y.array

    return run


def depthwise(g, w, bias, clip, target, epilogue):
    return [windows.depthwise(g, w, bias, clip, target=target, epilogue=epilogue)]


def winograd_calls(g, w, bias, clip, target, epilogue):
    packed = winograd.pack_weights(g, w, 2, target)
    return winograd.prepare_winograd(g, packed, bias, clip, m=2, target=target, epilogue=epilogue)


KERNELS = {
    "product": run_product,
    "direct": run_direct,
    "depthwise": run_blocked(depthwise, 20),
    "winograd": run_blocked(winograd_calls, 1),
}


@pytest.mark.parametrize("kernel", KERNELS)
def test_a_relu_as_a_step_has_the_bits_of_clamping(kernel, target):
    run = KERNELS[kernel]
    clamped = run(target, CLIP)
    assert (clamped == 0).any()
    np.testing.assert_array_equal(run(target, epilogue=RELU), clamped)


@pytest.mark.parametrize("kernel", KERNELS)
def test_steps_have_the_bits_of_a_loop_of_their_own(kernel, target):
    run = KERNELS[kernel]
    x = run(target)
    y = np.empty_like(x)
    native.run(elementwise.prepare(SILU, [x.shape], x.shape, target), x0=x, out=y)
    np.testing.assert_array_equal(run(target, epilogue=SILU), y)


def test_both_kinds_of_lanes_are_tested(target):
    kinds = {
        choose(geometry((1, c, 5, 9), (f, c // n, 3, 3), 1, 1, 1, n), target).lanes
        for c, f, n in ((600, 11, 1), (6, 6, 6))
    }
    assert kinds == {"channels", "pixels"}
    assert DirectVariant(1, 1, 1).epilogue == ()
