"""Every rung of the convolution agrees with torch."""

import numpy as np
import pytest
import torch
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlhood.errors import KernelError
from mlhood.kernels import CONV2D
from mlhood.kernels.codegen.target import available
from mlhood.kernels.conv import RELU, im2col
from mlhood.kernels.direct import Direct, prepare
from mlhood.kernels.geometry import geometry

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 3))


@st.composite
def convolutions(draw):
    groups, channels = draw(st.sampled_from([1, 1, 2, 3, 5])), draw(st.integers(1, 4))
    filters = draw(st.sampled_from([1, 1, 2, 3, 16, 17, 33]))
    kernel, stride, dilation = draw(PAIRS), draw(PAIRS), draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    if draw(st.integers(0, 4)) == 0:
        kernel, stride, padding = (1, 1), (1, 1), (0, 0, 0, 0)
    x = (draw(st.integers(1, 2)), groups * channels, draw(st.integers(1, 24)), draw(st.integers(1, 40)))
    size = [x[2] + padding[0] + padding[2], x[3] + padding[1] + padding[3]]
    assume(all(d * (k - 1) < s for d, k, s in zip(dilation, kernel, size, strict=True)))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, (groups * filters, channels, *kernel), options


def tensors(*shapes: tuple[int, ...]) -> list[np.ndarray]:
    rng = np.random.default_rng(sum(map(sum, shapes)))
    return [rng.standard_normal(shape, np.float32) for shape in shapes]


def by_torch(x, w, bias=None, stride=(1, 1), padding=(0, 0, 0, 0), dilation=(1, 1), groups=1) -> np.ndarray:
    top, left, bottom, right = padding
    padded = torch.nn.functional.pad(torch.from_numpy(x).double(), (left, right, top, bottom))
    offset = None if bias is None else torch.from_numpy(bias).double()
    weights = torch.from_numpy(w).double()
    return torch.nn.functional.conv2d(padded, weights, offset, stride, 0, dilation, groups).numpy()


def assert_close(y: np.ndarray, expected: np.ndarray, depth: int) -> None:
    assert y.dtype == np.float32
    assert y.shape == expected.shape
    assert np.abs(y - expected).max(initial=0) <= 1e-6 * (8 + depth) * (1 + np.abs(expected).max(initial=0))


@pytest.mark.parametrize("rung", CONV2D)
@settings(max_examples=25)
@given(case=convolutions(), threads=st.sampled_from([1, 2]))
def test_a_rung_agrees_with_torch(rung, case, threads):
    shape, weights, options = case
    x, w, bias = tensors(shape, weights, (weights[0],))
    expected = by_torch(x, w, bias, **options)
    assert_close(CONV2D[rung](x, w, bias, **options, threads=threads), expected, w[0].size)
    (residual,) = tensors(expected.shape)
    clipped = np.clip(expected + residual, 0, 6)
    y = CONV2D[rung](x, w, bias, **options, residual=residual, clip=(0, 6), threads=threads)
    assert_close(y, clipped, w[0].size)


@settings(max_examples=25)
@given(case=convolutions(), threads=st.sampled_from([1, 2]))
def test_the_direct_kernel_agrees_on_every_processor(case, threads):
    shape, weights, options = case
    x, w, bias = tensors(shape, weights, (weights[0],))
    expected = by_torch(x, w, bias, **options)
    for target in available():
        prepared = Direct(geometry(shape, weights, **options), w, bias, target=target)
        assert_close(prepared(x, threads=threads), expected, w[0].size)


def test_a_deep_window_is_summed_in_blocks(monkeypatch, target):
    monkeypatch.setattr("mlhood.kernels.direct._WEIGHT_BYTES", 4 * 16 * 40)
    x, w, bias, residual = tensors((1, 30, 9, 15), (20, 30, 3, 3), (20,), (1, 20, 9, 15))
    expected = np.maximum(by_torch(x, w, bias, padding=(1, 1, 1, 1)) + residual, 0)
    prepared = Direct(geometry(x.shape, w.shape, padding=1), w, bias, target, epilogue=(("Relu", (), (0,)),))
    for threads in (1, 2, 4):
        assert_close(prepared(x, residual, threads=threads), expected, w[0].size)


@pytest.mark.parametrize("rung", CONV2D)
def test_strided_arrays(rung):
    x, w = tensors((2, 6, 10, 22), (8, 6, 3, 3))
    x, w = x[:, ::2, ::-1, ::2], w.transpose(0, 1, 3, 2)[:, ::2]
    assert_close(CONV2D[rung](x, w, threads=1), by_torch(x.copy(), w.copy()), 27)


@pytest.mark.parametrize("rung", CONV2D)
@pytest.mark.parametrize(
    ("x", "w"), [((0, 3, 5, 5), (4, 3, 3, 3)), ((1, 3, 5, 5), (0, 3, 3, 3)), ((2, 0, 5, 5), (4, 0, 1, 1))]
)
def test_empty_convolutions(rung, x, w):
    bias = np.arange(w[0], dtype=np.float32)
    y = CONV2D[rung](np.ones(x, np.float32), np.ones(w, np.float32), bias, padding=1, threads=1)
    high = 5 + 2 - w[2] + 1
    assert y.shape == (x[0], w[0], high, high)
    if x[1] == 0:
        assert (y == bias[:, None, None]).all()


@pytest.mark.parametrize("rung", CONV2D)
def test_nan_spreads_within_its_windows_only(rung):
    x, w = np.ones((1, 2, 9, 20), np.float32), np.ones((3, 2, 3, 3), np.float32)
    x[0, 0, 4, 10] = np.nan
    y = CONV2D[rung](x, w, padding=1, clip=RELU, threads=1)
    assert np.isnan(y[0, :, 3:6, 9:12]).all()
    assert np.isnan(y).sum() == 27


@pytest.mark.parametrize(
    ("x", "w", "options", "message"),
    [
        ((1, 3, 5), (4, 3, 3, 3), {}, "four-dimensional"),
        ((1, 3, 5, 5), (4, 2, 3, 3), {}, "inconsistent"),
        ((1, 4, 5, 5), (3, 2, 3, 3), {"groups": 2}, "inconsistent"),
        ((1, 3, 5, 5), (4, 3, 7, 7), {}, "does not fit into the input"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"stride": 0}, "invalid stride"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": (0, -1)}, "invalid padding"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"padding": (1, 1, 1)}, "invalid padding"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"dilation": (1, 2, 3)}, "invalid dilation"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"bias": np.zeros(3, np.float32)}, "bias has the wrong shape"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"residual": np.zeros((1, 4, 5, 5), np.float32)}, "residual has the wrong shape"),
        ((1, 3, 5, 5), (4, 3, 3, 3), {"bias": np.zeros(4)}, "bias is not a NumPy array of float32"),
    ],
)
def test_invalid_convolutions_are_refused(x, w, options, message):
    for convolve in CONV2D.values():
        with pytest.raises(KernelError, match=message):
            convolve(np.zeros(x, np.float32), np.zeros(w, np.float32), **options)


def test_a_prepared_convolution_refuses_other_inputs():
    (w,) = tensors((4, 3, 3, 3))
    prepared = Direct(geometry((1, 3, 8, 8), w.shape), w)
    for invalid in (
        np.zeros((1, 3, 8, 9), np.float32),
        np.zeros((1, 3, 8, 8)),
        np.zeros((1, 3, 8, 16), np.float32)[..., ::2],
    ):
        with pytest.raises(KernelError, match="x does not fit"):
            prepared(invalid)
    with pytest.raises(KernelError, match="out does not fit"):
        prepared(np.zeros((1, 3, 8, 8), np.float32), out=np.zeros((1, 4, 5, 6), np.float32))


def test_preparing_refuses_mismatched_weights():
    g = geometry((1, 3, 8, 8), (4, 3, 3, 3))
    for invalid in (
        np.zeros((4, 3, 3, 2), np.float32),
        np.zeros((4, 3, 3, 3)),
        np.zeros((4, 3, 3, 6), np.float32)[..., ::2],
    ):
        with pytest.raises(KernelError, match="w does not fit"):
            Direct(g, invalid)
    with pytest.raises(KernelError, match="bias does not fit"):
        Direct(g, np.zeros((4, 3, 3, 3), np.float32), np.zeros(3, np.float32))


def test_the_result_is_written_to_out():
    x, w = tensors((1, 3, 8, 8), (4, 3, 3, 3))
    out = np.full((1, 4, 6, 6), 7, np.float32)
    assert Direct(geometry(x.shape, w.shape), w)(x, out=out) is out
    assert_close(out, by_torch(x, w), 27)


def test_a_column_of_im2col_is_a_window():
    x = np.arange(2 * 4 * 5, dtype=np.float32).reshape(2, 4, 5)
    columns = im2col(geometry((1, 2, 4, 5), (1, 2, 3, 3)), x)
    assert columns.shape == (1, 18, 6)
    assert (columns[0, :, 4] == x[:, 1:4, 1:4].ravel()).all()


def test_a_prepared_convolution_is_reusable():
    rng = np.random.default_rng(5)
    w, bias = rng.standard_normal((5, 3, 3, 3), np.float32), rng.standard_normal(5, np.float32)
    prepared = prepare((2, 3, 8, 6), w, bias, stride=2, padding=(1, 0))
    for x in rng.standard_normal((3, 2, 3, 8, 6), np.float32):
        expected = CONV2D["naive"](x, w, bias, 2, (1, 0))
        np.testing.assert_allclose(prepared(x), expected, rtol=1e-4, atol=1e-5)
