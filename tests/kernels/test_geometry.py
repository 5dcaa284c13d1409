"""Blocked activations are convolved like plain ones."""

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlhood.compiler.operators.blocked import to_blocked, to_plain
from mlhood.errors import KernelError
from mlhood.kernels import CONV2D
from mlhood.kernels.codegen.target import PORTABLE, available
from mlhood.kernels.direct import Direct
from mlhood.kernels.geometry import geometry

PAIRS = st.tuples(st.integers(1, 3), st.integers(1, 2))
COUNTS = st.sampled_from([1, 3, 4, 16, 17, 33, 48])


@st.composite
def convolutions(draw, lanes):
    groups = draw(st.sampled_from([1, 1, 2]))
    channels, filters = (draw(COUNTS) if groups == 1 else lanes * draw(st.integers(1, 3)) for _ in range(2))
    kernel, stride, dilation = draw(PAIRS), draw(PAIRS), draw(st.tuples(st.integers(1, 2), st.integers(1, 2)))
    padding = draw(st.tuples(*[st.integers(0, 2)] * 4))
    x = (draw(st.integers(1, 2)), groups * channels, draw(st.integers(1, 12)), draw(st.integers(1, 20)))
    size = [x[2] + padding[0] + padding[2], x[3] + padding[1] + padding[3]]
    assume(all(d * (k - 1) < s for d, k, s in zip(dilation, kernel, size, strict=True)))
    options = {"stride": stride, "padding": padding, "dilation": dilation, "groups": groups}
    return x, (groups * filters, channels, *kernel), options


@pytest.mark.parametrize(
    ("input_layout", "output_layout"), [("blocked", "plain"), ("plain", "blocked"), ("blocked", "blocked")]
)
@pytest.mark.parametrize("processor", available(), ids=lambda target: target.name)
@settings(max_examples=8)
@given(data=st.data(), threads=st.sampled_from([1, 2]), clip=st.sampled_from([None, (0, 6), (1, 2)]))
def test_the_layout_does_not_change_the_result(processor, input_layout, output_layout, data, threads, clip):
    shape, weights, options = data.draw(convolutions(processor.lanes))
    g, rng = geometry(shape, weights, **options), np.random.default_rng(shape[2])
    x, w, bias, residual = (rng.standard_normal(s, np.float32) for s in (shape, weights, weights[0], g.out_shape))
    expected = CONV2D["im2col_blas"](x, w, bias, **options, residual=residual, clip=clip, threads=1)
    steps, layouts = (
        () if clip is None else (("Clip", clip, (0,)),),
        {"input_layout": input_layout, "output_layout": output_layout},
    )
    prepared = Direct(g, w, bias, processor, **layouts, epilogue=steps)
    stored_x = stored(x, input_layout, processor.lanes)
    stored_residual = stored(residual, output_layout, processor.lanes)
    guarded = np.full(np.prod(prepared.shapes[1], dtype=int) + 1, 7, np.float32)
    y = prepared(stored_x, stored_residual, guarded[:-1].reshape(prepared.shapes[1]), threads)
    y = to_plain(y, g.filters) if output_layout == "blocked" else y
    assert np.abs(y - expected).max() <= 1e-5 * (8 + g.depth)
    assert guarded[-1] == 7


def stored(x: np.ndarray, layout: str, lanes: int) -> np.ndarray:
    return to_blocked(x, lanes) if layout == "blocked" else x


def test_lanes_beyond_the_channels_are_not_read(target):
    rng = np.random.default_rng(0)
    x, w = rng.standard_normal((1, 5, 6, 6), np.float32), rng.standard_normal((4, 5, 3, 3), np.float32)
    blocked = to_blocked(x, target.lanes)
    blocked[:, -1, :, :, 5 % target.lanes :] = np.nan
    y = Direct(geometry(x.shape, w.shape), w, target=target, input_layout="blocked")(blocked)
    assert np.abs(y - CONV2D["im2col_blas"](x, w, threads=1)).max() <= 1e-4


@pytest.mark.parametrize("layouts", [{"input_layout": "blocked"}, {"output_layout": "blocked"}])
def test_groups_within_a_block_are_refused(layouts):
    g, w = geometry((1, 6, 5, 5), (6, 1, 3, 3), groups=6), np.zeros((6, 1, 3, 3), np.float32)
    with pytest.raises(KernelError, match="would span two groups"):
        Direct(g, w, **layouts)


def test_invalid_arguments_are_refused():
    g, w = geometry((1, 5, 6, 6), (4, 5, 3, 3)), np.zeros((4, 5, 3, 3), np.float32)
    with pytest.raises(KernelError, match="x does not fit"):
        Direct(g, w, target=PORTABLE, input_layout="blocked")(np.zeros((1, 5, 6, 6), np.float32))
