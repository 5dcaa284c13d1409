"""The nests: they look up what they say they read, and miss as often as the closed forms say they should."""

import itertools

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.dataflow.cache.nest import in_place, packed, simulate
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import declared
from mlhood.dataflow.slicing.problem import ORDERS, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import lines_into
from mlhood.kernels.geometry import geometry

SIZES = (4096, 16384, 65536)


def groups(count, size):
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def trace(problem, slicing, layout, line):
    """Yield the addresses of a nest by its definition."""
    area = problem.kernel[0] * problem.kernel[1]
    passing, staying = counts(problem, slicing.order)
    out = range(0, problem.output_bytes, line)
    for number, channels in enumerate(groups(problem.channels, slicing.k1)):
        for stays, passes in itertools.product(groups(staying, slicing.k3), groups(passing, slicing.k2)):
            for s, p in itertools.product(stays, passes):
                i, f = (s, p) if slicing.order == "IS" else (p, s)
                if number:
                    yield from (layout.outputs[i, f] + byte for byte in out)
                for k in range(channels.start * area, channels.stop * area):
                    inner = k - channels.start * area
                    yield from (layout.weights[number, f] + (inner * problem.filter_tile + n) * 4
                                for n in range(problem.filter_tile))  # fmt: skip
                    yield from (layout.inputs[number, i] + layout.steps[k] + m * layout.spread
                                for m in range(problem.window))  # fmt: skip
                yield from (layout.outputs[i, f] + byte for byte in out)


@pytest.mark.parametrize("order", ORDERS)
def test_a_nest_looks_up_its_definition(order):
    g = geometry((1, 5, 9, 9), (10, 5, 2, 3), stride=(2, 1), padding=1)
    problem = Problem(10, 5, (2, 3), g.out, window=4, filter_tile=4, rows=g.out[0])
    slicing = Slicing(order, 2, 2, 3)
    for layout in (packed(problem, slicing, 64), in_place(g, problem, slicing)):
        nest, plain = (Hierarchy([Level(1024, 2), Level(4096, 4)]) for _ in range(2))
        plain.access(np.fromiter(trace(problem, slicing, layout, 64), np.int64))
        assert simulate(problem, slicing, nest, layout) == plain.served


@pytest.mark.parametrize("order", ORDERS)
def test_tiles_in_place_are_the_windows_of_the_convolution(order):
    g = geometry((1, 3, 8, 11), (9, 3, 3, 2), stride=(1, 2), padding=(1, 0))
    problem = Problem(9, 3, (3, 2), g.out, window=4, filter_tile=4, rows=g.out[0])
    layout = in_place(g, problem, Slicing(order, 1, 2, 2))
    x = np.arange(3 * g.padded[0] * g.padded[1]).reshape(3, *g.padded)
    windows = np.lib.stride_tricks.sliding_window_view(x, g.kernel, (1, 2))[:, :: g.stride[0], :: g.stride[1]]
    windows = windows.transpose(1, 2, 0, 3, 4).reshape(*g.out, g.depth)  # [OH, OW, k]
    spread = np.arange(problem.window) * layout.spread
    read = (layout.inputs[0][:, None, None] + spread[:, None] + layout.steps) // 4  # [tiles, windows, k]
    first = [*range(0, g.out[1] - problem.window, problem.window), g.out[1] - problem.window]
    expected = [windows[row, column : column + problem.window] for row in range(g.out[0]) for column in first]
    np.testing.assert_array_equal(read, expected)


def test_packed_tiles_do_not_overlap():
    problem, slicing = Problem(13, 5, (3, 3), (6, 7), 8, 4), Slicing("WS", 2, 2, 2)
    layout = packed(problem, slicing, 64)
    pieces = [(layout.inputs, 2 * problem.input_bytes), (layout.weights, 2 * problem.weight_bytes),
              (layout.outputs, problem.output_bytes)]  # fmt: skip
    spans = sorted((int(start), int(start) + size) for starts, size in pieces for start in starts.ravel())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert all(start % 64 == 0 for start, _ in spans)


@st.composite
def problems(draw):
    kernel = draw(st.sampled_from([(1, 1), (2, 2), (3, 3)]))
    output = draw(st.tuples(st.integers(4, 16), st.integers(4, 16)))
    tile = draw(st.sampled_from([4, 8])), draw(st.sampled_from([4, 8]))
    return Problem(draw(st.sampled_from([8, 16, 64])), draw(st.sampled_from([4, 8, 20])), kernel, output, *tile)


@given(problems(), st.sampled_from(ORDERS), st.data())
@settings(deadline=None, max_examples=150, derandomize=True)
def test_the_predicted_lines_are_the_simulated_ones(problem, order, data):
    """In caches without sets, with full groups, and where no reuse is at a cache's edge, to the line."""
    passing, staying = counts(problem, order)
    k1 = data.draw(st.sampled_from([k for k in (1, 2, 4, 8, 20) if problem.channels % k == 0]))
    k2 = data.draw(st.sampled_from([k for k in range(1, passing + 1) if passing % k == 0]))
    k3 = data.draw(st.sampled_from([k for k in range(1, staying + 1) if staying % k == 0]))
    near = {room: {int(lines_into(problem, order, k1, k2, k3, room * part, 64)) for part in (0.6, 1, 1.5)}
            for room in SIZES}  # fmt: skip
    clear = [level for level, room in enumerate(SIZES) if len(near[room]) == 1]
    assume(clear)
    served = simulate(problem, Slicing(order, k1, k2, k3), Hierarchy([Level(size) for size in SIZES]))
    for level in clear:
        assert {served.into[level]} == near[SIZES[level]]


def test_the_papers_example_misses_as_predicted():
    """In caches with sets, within 5 %: conflicts come on top."""
    problem = Problem(256, 32, (3, 3), (75, 75), 16, 8)
    slicing = analyse(problem, declared("32KiB,1MiB,4MiB", 0.9)).slicing
    hierarchy = Hierarchy([Level(2**15, 8), Level(2**20, 16), Level(2**22, 16)])
    served = simulate(problem, slicing, hierarchy)
    predicted = [int(lines_into(problem, slicing.order, *slicing.tiles, room, 64)) for room in (2**15, 2**20, 2**22)]
    assert served.into[1:] == (predicted[1], predicted[2])
    assert predicted[0] <= served.into[0] <= 1.05 * predicted[0]
