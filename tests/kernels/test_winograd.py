"""Winograd's convolution, against torch, with its error bounded."""

import numpy as np
import pytest
import torch

from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.kernels import native, winograd
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64, available, host
from mlhood.kernels.geometry import geometry, stored_shape
from tests.kernels.guards import Guarded

# channels, filters, height, width, padding
SHAPES = [(16, 16, 8, 8, 1), (24, 40, 7, 9, 1), (20, 18, 5, 6, (0, 1, 2, 3)), (16, 16, 3, 3, 0), (33, 17, 14, 4, 2)]


def reference(x, w, bias, padding):
    top, left, bottom, right = padding
    padded = torch.nn.functional.pad(torch.tensor(x).double(), (left, right, top, bottom))
    return torch.nn.functional.conv2d(padded, torch.tensor(w).double(), torch.tensor(bias).double()).numpy()


def run(g, x, w, bias, residual=None, *, m, target, threads=1, epilogue=(), chunk=None):
    lanes = target.lanes
    options = {"m": m, "chunk": chunk, "threads": threads, "target": target, "epilogue": epilogue}
    calls = winograd.prepare_winograd(g, winograd.pack_weights(g, w, m, target), bias, **options)
    sizes = {name: max(c.workspace.get(name, 0) for c in calls) for name in ("v", "p")}
    spaces = {name: Guarded(size // 4) for name, size in sizes.items()}
    blocked = to_blocked(x, lanes)
    y = Guarded(stored_shape(g.out_shape, "blocked", lanes))
    arrays = {"x": Guarded(blocked.shape, blocked).array, "y": y.array, "v": spaces["v"].array, "p": spaces["p"].array}
    arrays["nonfinite"] = np.zeros(1, np.int64)
    if residual is not None:
        arrays["residual"] = to_blocked(residual, lanes)
    for call in calls:
        given = {name: arrays[name] for name in call.operands if name in arrays}
        native.run(native.NativeCall(call.kernel, call.words, call.operands, {}, call.keep), threads, **given)
    for guarded in (y, *spaces.values()):
        guarded.check()
    return to_plain(y.array, g.filters), bool(arrays["nonfinite"][0])


def problem(channels, filters, high, wide, padding, images=2):
    draw = np.random.default_rng(channels + high)
    x = draw.standard_normal((images, channels, high, wide), np.float32)
    w = draw.standard_normal((filters, channels, 3, 3), np.float32)
    g = geometry(x.shape, w.shape, 1, padding)
    return g, x, w, draw.standard_normal(filters, np.float32)


@pytest.mark.parametrize("target", available(), ids=lambda target: target.name)
@pytest.mark.parametrize("m", winograd.TILES)
@pytest.mark.parametrize("shape", SHAPES, ids=str)
def test_it_agrees_with_torch_within_a_bound(shape, m, target):
    g, x, w, bias = problem(*shape)
    expected = reference(x, w, bias, g.padding)
    actual, is_invalid = run(g, x, w, bias, m=m, target=target)
    assert not is_invalid
    # measured over the layers of ResNet: 5e-7 of the largest result for m = 2, 8e-6 for m = 4
    assert np.abs(actual - expected).max() < {2: 2e-6, 4: 3e-5}[m] * np.abs(expected).max()


@pytest.mark.parametrize("m", winograd.TILES)
def test_threads_and_chunks_give_the_same_bits(m):
    g, x, w, bias = problem(16, 24, 13, 11, 1, images=3)
    results = [
        run(g, x, w, bias, m=m, target=host(), threads=threads, chunk=chunk)[0]
        for threads, chunk in [(1, None), (2, None), (1, 1), (2, 3), (1, 4)]
    ]
    assert all((result == results[0]).all() for result in results)


@pytest.mark.parametrize("m", winograd.TILES)
def test_the_residual_is_added_before_the_steps(m):
    g, x, w, bias = problem(16, 16, 6, 10, 1)
    residual = np.random.default_rng(1).standard_normal(g.out_shape).astype(np.float32)
    actual, _ = run(g, x, w, bias, residual, m=m, target=host(), epilogue=(("Clip", (0.0, 6.0), (0,)),))
    np.testing.assert_allclose(actual, np.clip(reference(x, w, bias, g.padding) + residual, 0, 6), atol=1e-3)


@pytest.mark.parametrize("value", [np.nan, np.inf, -np.inf, 3e38])
@pytest.mark.parametrize("channel", [0, 19])
def test_numbers_that_are_not_finite_and_overflows_are_reported(value, channel):
    """They reach the whole tile of results, which is wrong, and no other."""
    g, x, w, bias = problem(20, 18, 16, 16, 1, images=1)
    x[0, channel, 0, 0] = value
    actual, is_invalid = run(g, x, w, bias, m=4, target=host())
    assert is_invalid
    assert np.isfinite(actual[..., 4:, :]).all()


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        ({"stride": 2}, "stride"),
        ({"dilation": 2}, "dilation"),
        ({"groups": 2}, "groups"),
    ],
)
def test_other_convolutions_are_not_supported(change, reason):
    groups = change.get("groups", 1)
    g = geometry((1, 32, 9, 9), (32, 32 // groups, 3, 3), **change)
    assert not winograd.supports(g, 8), reason
    assert winograd.supports(geometry((1, 32, 9, 9), (32, 32, 3, 3)), 8)


@pytest.mark.parametrize("build", [winograd.build_input, winograd.build_output])
def test_the_code_compiles_for_arm(build):
    assert "fmla" in jit.compile_ir(build(AARCH64, 4), AARCH64, assembly=True)
