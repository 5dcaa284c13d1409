"""Simulated nests: their accesses against the definition, their misses against the closed forms."""

import itertools

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.dataflow.cache.nest import packed, simulate
from mlhood.dataflow.slicing.analysis import analyse
from mlhood.dataflow.slicing.caches import declared
from mlhood.dataflow.slicing.problem import ORDERS, Problem, Slicing, counts
from mlhood.dataflow.slicing.traffic import lines_into
from mlhood.kernels.geometry import geometry
from tests.dataflow.cache.looked_up import access

SIZES = (4096, 16384, 65536)


def groups(count, size):
    return [range(first, min(first + size, count)) for first in range(0, count, size)]


def trace(problem, slicing, layout, line):
    """Yield the addresses of a nest by definition."""
    area = problem.kernel[0] * problem.kernel[1]
    streamed, stationary = counts(problem, slicing.order)
    out = range(0, problem.output_bytes, line)
    for part, channels in enumerate(groups(problem.channels, slicing.k1)):
        for group3, group2 in itertools.product(groups(stationary, slicing.k3), groups(streamed, slicing.k2)):
            for s, p in itertools.product(group3, group2):
                i, f = (s, p) if slicing.order == "IS" else (p, s)
                if part:
                    yield from (layout.outputs[i, f] + byte for byte in out)
                for k in range(channels.start * area, channels.stop * area):
                    weights = layout.weights[part, f] + (k - channels.start * area) * problem.filter_tile * 4
                    windows = layout.inputs[part, i] + layout.steps[k]
                    yield from (weights + n * 4 for n in range(problem.filter_tile))
                    yield from (windows + m * 4 for m in range(problem.window))
                yield from (layout.outputs[i, f] + byte for byte in out)


@pytest.mark.parametrize("order", ORDERS)
def test_a_nest_is_simulated_by_definition(order):
    g = geometry((1, 5, 9, 9), (10, 5, 2, 3), stride=(2, 1), padding=1)
    problem = Problem(10, 5, (2, 3), g.out, window=4, filter_tile=4, rows=g.out[0])
    slicing = Slicing(order, 2, 2, 3)
    nest, plain = (Hierarchy([Level(1024, 2), Level(4096, 4)]) for _ in range(2))
    access(plain, list(trace(problem, slicing, packed(problem, slicing, 64), 64)))
    assert simulate(problem, slicing, nest) == plain.hits


def test_packed_tiles_do_not_overlap():
    problem, slicing = Problem(13, 5, (3, 3), (6, 7), 8, 4), Slicing("WS", 2, 2, 2)
    layout = packed(problem, slicing, 64)
    sizes = (2 * problem.input_bytes, 2 * problem.weight_bytes, problem.output_bytes)
    blocks = zip((layout.inputs, layout.weights, layout.outputs), sizes, strict=True)
    spans = sorted((int(start), int(start) + size) for starts, size in blocks for start in starts.ravel())
    assert all(end <= start for (_, end), (start, _) in itertools.pairwise(spans))
    assert all(start % 64 == 0 for start, _ in spans)


@st.composite
def problems(draw):
    kernel = draw(st.sampled_from([(1, 1), (2, 2), (3, 3)]))
    output = draw(st.tuples(st.integers(4, 16), st.integers(4, 16)))
    tile = draw(st.sampled_from([4, 8])), draw(st.sampled_from([4, 8]))
    return Problem(draw(st.sampled_from([8, 16, 64])), draw(st.sampled_from([4, 8, 20])), kernel, output, *tile)


@given(problems(), st.sampled_from(ORDERS), st.data())
@settings(max_examples=150)
def test_predicted_lines_equal_simulated_ones(problem, order, data):
    """Exactly, for fully associative caches, full groups, and reuse distances clearly above or below the capacity."""
    streamed, stationary = counts(problem, order)
    k1 = data.draw(st.sampled_from([k for k in (1, 2, 4, 8, 20) if problem.channels % k == 0]))
    k2 = data.draw(st.sampled_from([k for k in range(1, streamed + 1) if streamed % k == 0]))
    k3 = data.draw(st.sampled_from([k for k in range(1, stationary + 1) if stationary % k == 0]))
    predicted = [
        {int(lines_into(problem, order, k1, k2, k3, size * part, 64)) for part in (0.6, 1, 1.5)} for size in SIZES
    ]
    clear = [level for level, lines in enumerate(predicted) if len(lines) == 1]
    assume(clear)
    hits = simulate(problem, Slicing(order, k1, k2, k3), Hierarchy([Level(size) for size in SIZES]))
    for level in clear:
        assert {hits.into[level]} == predicted[level]


def test_the_papers_example_misses_as_predicted():
    """Within 5 % for set-associative caches, which have conflict misses."""
    problem = Problem(256, 32, (3, 3), (75, 75), 16, 8)
    slicing = analyse(problem, declared("32KiB,1MiB,4MiB", 0.9)).slicing
    hierarchy = Hierarchy([Level(2**15, 8), Level(2**20, 16), Level(2**22, 16)])
    hits = simulate(problem, slicing, hierarchy)
    predicted = [int(lines_into(problem, slicing.order, *slicing.tiles, size, 64)) for size in (2**15, 2**20, 2**22)]
    assert hits.into[1:] == (predicted[1], predicted[2])
    assert predicted[0] <= hits.into[0] <= 1.05 * predicted[0]
