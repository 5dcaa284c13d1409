"""Programs of one layer: any slicing that fits gives the numbers of a plain convolution, and passes the simulator."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.nmp.codegen.convolution import layer_program
from mlhood.compiler.backends.nmp.codegen.search import axes, greedy, groups_of, search
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, misfits
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.backends.nmp.simulator import simulate
from mlhood.compiler.backends.nmp.stages import NmpStage, NmpWindow, NmpWork
from mlhood.errors import CompilerError

MACHINES = [
    replace(default_machine(), name=f"{tiles}x{tilelets}", tiles=tiles, tilelets=tilelets, blob_bytes=size)
    for tiles, tilelets, size in ((1, 1, 512), (1, 1, 65536), (2, 3, 1024), (4, 8, 8192), (8, 16, 2048))
]


@st.composite
def convolutions(draw, kinds=("conv", "depthwise")):
    """A convolution with its arrays, element type int8 or int16."""
    kind, element = draw(st.sampled_from(kinds)), draw(st.sampled_from([1, 2]))
    channels = draw(st.integers(1, 9))
    filters = channels if kind == "depthwise" else draw(st.integers(1, 9))
    kernel, strides = (tuple(draw(st.integers(1, 3)) for _ in range(2)) for _ in range(2))
    dilations = tuple(draw(st.integers(1, 2)) for _ in range(2))
    spans = [(k - 1) * d + 1 for k, d in zip(kernel, dilations, strict=True)]
    pads = tuple(draw(st.integers(0, k - 1)) for k in kernel)
    height, width = (draw(st.integers(span, span + 6)) for span in spans)
    out = [(n + 2 * p - span) // s + 1 for n, p, span, s in zip((height, width), pads, spans, strides, strict=True)]
    low, high = draw(st.sampled_from([(-128, 127), (0, 127), (0, 96)]))
    window = NmpWindow(kernel, strides, dilations, pads)
    shift = draw(st.integers(-2, 12))
    stage = NmpStage(kind, element, channels, height, width, filters, *out, window, shift, low, high)
    rng = np.random.default_rng(draw(st.integers(0, 2**32)))
    limits = np.iinfo(f"int{8 * element}")
    shape = (filters, *((channels,) if kind == "conv" else ()), *kernel)
    weights = rng.integers(limits.min, limits.max, shape, endpoint=True).astype(limits.dtype)
    bias = rng.integers(-(2**20), 2**20, filters).astype(np.int32)
    x = rng.integers(limits.min, limits.max, (channels, height, width), endpoint=True).astype(limits.dtype)
    return NmpWork(stage, weights, bias), x


def expected(work, x):
    """The convolution by torch in float64, which holds these sums exactly, and the rescaling by Python's integers."""
    stage, window = work.stage, work.stage.window
    weights = work.weights if stage.kind == "conv" else work.weights[:, None]
    sums = torch.nn.functional.conv2d(
        torch.from_numpy(x.astype(np.float64))[None],
        torch.from_numpy(weights.astype(np.float64)),
        torch.from_numpy(work.bias.astype(np.float64)),
        stride=window.strides,
        padding=window.pads,
        dilation=window.dilations,
        groups=1 if stage.kind == "conv" else stage.channels,
    )[0].numpy()
    scaled = np.floor(sums / 2.0**stage.shift + (0.5 if stage.shift > 0 else 0))
    return np.clip(scaled, stage.low, stage.high).astype(x.dtype)


@st.composite
def slicings(draw, stages, machine):
    """A slicing that fits, or None: sizes that the layer's axes can be cut into, any order, groups and buffers."""
    sizes = [draw(st.sampled_from(each)) for each in axes(stages)]
    order, (tiles, tilelets) = draw(st.sampled_from(ORDERS)), draw(st.sampled_from(groups_of(machine)))
    slicing = Slicing(*sizes, order, tiles, tilelets, draw(st.booleans()))
    return None if misfits(stages, slicing, machine) else slicing


@given(data=st.data())
@settings(max_examples=60)
def test_any_slicing_that_fits_gives_the_same_numbers(data):
    work, x = data.draw(convolutions())
    machine = data.draw(st.sampled_from(MACHINES))
    slicing = data.draw(slicings((work.stage,), machine)) or greedy((work.stage,), machine).slicing
    program = layer_program((work.stage,), slicing, machine, [work])
    np.testing.assert_array_equal(simulate(program, {"x": x})["y"], expected(work, x))


@given(data=st.data())
@settings(max_examples=25)
def test_the_search_is_never_slower_than_greedy_and_gives_the_same_numbers(data):
    work, x = data.draw(convolutions())
    machine = data.draw(st.sampled_from(MACHINES))
    best = search((work.stage,), machine)
    assert best.cycles <= greedy((work.stage,), machine).cycles
    program = layer_program((work.stage,), best.slicing, machine, [work])
    assert time_program(program).cycles == best.cycles
    np.testing.assert_array_equal(simulate(program, {"x": x})["y"], expected(work, x))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("double_buffered", [False, True])
def test_orders_with_slices_of_channels_finish_sums_that_leave_the_tilelet(order, double_buffered):
    rng = np.random.default_rng(1)
    stage = NmpStage("conv", 1, 8, 6, 6, 8, 6, 6, NmpWindow((3, 3), pads=(1, 1)), 9, -128, 127)
    weights = rng.integers(-128, 128, (8, 8, 3, 3)).astype(np.int8)
    work = NmpWork(stage, weights, rng.integers(-999, 999, 8).astype(np.int32))
    x = rng.integers(-128, 128, (8, 6, 6)).astype(np.int8)
    machine = MACHINES[1]
    slicing = Slicing(2, 3, 3, 3, order, double_buffered=double_buffered)
    program = layer_program((stage,), slicing, machine, [work])
    np.testing.assert_array_equal(simulate(program, {"x": x})["y"], expected(work, x))


def test_fused_stages_give_the_numbers_of_separate_layers():
    rng = np.random.default_rng(2)
    first = NmpStage("conv", 1, 3, 12, 12, 8, 12, 12, NmpWindow((3, 3), pads=(1, 1)), 8, 0, 127)
    second = NmpStage("depthwise", 1, 8, 12, 12, 8, 6, 6, NmpWindow((3, 3), (2, 2), pads=(1, 1)), 6, -128, 127)
    third = NmpStage("max", 1, 8, 6, 6, 8, 5, 5, NmpWindow((2, 2)), 0, -128, 127)
    works = [
        NmpWork(first, rng.integers(-128, 128, (8, 3, 3, 3)).astype(np.int8), np.zeros(8, np.int32)),
        NmpWork(second, rng.integers(-128, 128, (8, 3, 3)).astype(np.int8), np.arange(8, dtype=np.int32)),
        NmpWork(third),
    ]
    x = rng.integers(-128, 128, (3, 12, 12)).astype(np.int8)
    stages = (first, second, third)
    for double_buffered in (False, True):
        slicing = Slicing(2, 3, 2, 3, tilelets=2, double_buffered=double_buffered)
        machine = default_machine()
        fused = simulate(layer_program(stages, slicing, machine, works), {"x": x})["y"]
        y = x
        for work in works:
            one = (work.stage,)
            y = simulate(layer_program(one, greedy(one, machine).slicing, machine, [work]), {"x": y})["y"]
        np.testing.assert_array_equal(fused, y)


def test_a_slicing_that_does_not_fit_is_refused_with_operand_and_bytes():
    stage = NmpStage("conv", 1, 64, 32, 32, 64, 32, 32, NmpWindow((3, 3), pads=(1, 1)))
    with pytest.raises(CompilerError, match=r"(?s)does not fit: input.*8,192 bytes.*65,536 bytes"):
        layer_program((stage,), Slicing(32, 32, 4, 64), default_machine())


@pytest.mark.parametrize(
    ("change", "match"),
    [({"rows": 0}, "invalid slicing"), ({"order": "row"}, "unknown order"), ({"tilelets": 3}, "groups of filters")],
)
def test_an_invalid_slicing_is_refused(change, match):
    stage = NmpStage("conv", 1, 4, 4, 4, 4, 4, 4)
    with pytest.raises(CompilerError, match=match):
        layer_program((stage,), replace(Slicing(1, 1, 1, 1), **change), default_machine())


def test_a_machine_that_is_too_small_is_refused():
    stage = NmpStage("mean", 1, 4, 32, 32, 4, 1, 1, NmpWindow((32, 32)))
    machine = replace(default_machine(), blob_bytes=512)
    with pytest.raises(CompilerError, match=r"(?s)not even one pixel.*input.*512 bytes.*1,024"):
        search((stage,), machine)
