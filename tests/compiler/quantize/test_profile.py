"""Distributions and profiles: exact counts, also when merged."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.activation import AddActivation
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.compiler.operators.normalization import Softmax
from mlhood.compiler.operators.reduction import REDUCTIONS
from mlhood.compiler.quantize import Distribution, Profile, profile
from mlhood.compiler.quantize.profile import BINS
from mlhood.errors import CompilerError

ReduceMax = next(operator for operator in REDUCTIONS if operator.__name__ == "ReduceMax")
FEW = settings(max_examples=150)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
small = st.floats(-10, 10, width=32)
arrays = st.one_of(
    *(hnp.arrays(np.float32, st.integers(1, 40), elements=elements) for elements in (floats, small)),
    st.integers(0, 99).map(
        lambda seed: np.random.default_rng(seed).standard_normal(500, np.float32) * 10.0 ** (seed % 9)
    ),
)


@FEW
@given(x=arrays)
def test_every_element_is_counted_in_its_bin(x):
    distribution = Distribution.of(x)
    assert (distribution.low, distribution.high, distribution.count) == (x.min(), x.max(), x.size)
    assert len(distribution.counts) <= BINS
    assert distribution.counts[0] > 0
    assert distribution.counts[-1] > 0
    edges = distribution.edges
    for i in np.flatnonzero(distribution.counts):
        inside = (edges[i] <= x) & (x.astype(np.float64) < edges[i + 1])
        assert inside.sum() == distribution.counts[i]


@FEW
@given(x=arrays, y=arrays, z=arrays)
def test_a_merge_is_the_distribution_of_all_data(x, y, z):
    parts = [Distribution.of(part) for part in (x, y, z)]
    expected = Distribution.of(np.concatenate([x, y, z]))
    for merged in (parts[0].merge(parts[1]).merge(parts[2]), parts[2].merge(parts[0].merge(parts[1]))):
        assert all(map(np.array_equal, vars(merged).values(), vars(expected).values()))


def test_bins_are_no_finer_than_float32():
    assert len(Distribution.of(np.linspace(0, 1, 9999, dtype=np.float32)).counts) > BINS // 2
    assert Distribution.of(np.zeros(7, np.float32)).counts.tolist() == [7]
    assert Distribution.of(np.full(7, 3e38, np.float32)).counts.tolist() == [7]


@pytest.mark.parametrize(("x", "got"), [([1.0, np.nan], "1 nan"), ([np.inf, -np.inf], "2 inf"), ([], "no elements")])
def test_invalid_arrays(x, got):
    with pytest.raises(CompilerError, match=got):
        Distribution.of(np.array(x, np.float32))


# -- profiles


@pytest.fixture
def graph():
    graph = Graph("small")
    x = graph.placeholder("x", TensorType("float32", ("n", 3)))
    graph.output(graph.add(Relu(), x, name="relu", outputs=["y"]).outputs[0])
    return graph


@pytest.fixture
def batches():
    draw = np.random.default_rng(0)
    return [{"x": draw.standard_normal((size, 3), np.float32) * size} for size in (4, 1, 9)]


def test_placeholders_and_results_are_profiled(graph, batches):
    statistics = profile(graph, batches)
    x = np.concatenate([batch["x"] for batch in batches])
    assert list(statistics.distributions) == ["x", "y"]
    assert statistics.range("x") == (x.min(), x.max())
    assert statistics.range("y") == (0, x.max())
    assert statistics["y"].count == x.size


def test_a_profile_of_another_graph_is_rejected(graph, batches):
    statistics = profile(graph, batches)
    statistics.check(graph)
    graph.rename_node(graph.nodes["relu"], "other")
    with pytest.raises(CompilerError, match="belongs to another graph"):
        statistics.check(graph)


def test_the_error_names_the_first_value_with_nan(graph, batches):
    batches[1]["x"][0, 2] = np.nan
    with pytest.raises(CompilerError, match="value 'x'") as error:
        profile(graph, batches)
    assert "1 nan and 0 inf among 3 elements" in str(error.value)


@pytest.fixture
def masked():
    """Scores plus a mask of infinities, and their Softmax, which is finite."""
    graph = Graph("masked")
    x = graph.placeholder("x", TensorType("float32", (2, 2)))
    mask = graph.constant("mask", np.float32([[0, -np.inf], [0, 0]]))
    (scores,) = graph.add(Add(), x, mask, outputs=["scores"]).outputs
    graph.output(graph.add(Softmax((1,)), scores, outputs=["y"]).outputs[0])
    return graph


def test_a_value_with_infinities_has_no_range_but_is_remembered(masked):
    statistics = profile(masked, [{"x": np.ones((2, 2), np.float32)}])
    assert list(statistics.distributions) == ["x", "y"]
    assert statistics.unbounded == {"scores"}


def test_what_a_mask_hides_may_be_nan_but_no_output(masked):
    hidden = {"x": np.float32([[-np.inf, 0], [0, 0]])}
    with pytest.raises(CompilerError, match="value 'y'"):
        profile(masked, [hidden])
    masked.outputs.clear()
    masked.output(masked.add(ReduceMax((1,), False), masked.value("x"), outputs=["z"]).outputs[0])
    assert profile(masked, [hidden]).unbounded == {"scores", "x", "y"}


def test_the_range_before_a_fused_activation():
    graph = Graph()
    x, w = graph.placeholder("x", TensorType("float32", (4, 1))), graph.constant("w", np.float32([[0.5]]))
    graph.output(graph.add(FullyConnected(("Tanh",)), x, w, outputs=["y"]).outputs[0])
    before = graph.add(AddActivation(("HardSwish",)), x, x, outputs=["sum"]).outputs[0]
    graph.output(graph.add(FullyConnected(("Relu",)), before, w, outputs=["z"]).outputs[0])
    statistics = profile(graph, [{"x": np.float32([[-1], [0], [1], [3]])}])
    assert statistics.range("y.before") == (-0.5, 1.5)
    assert statistics.range("sum.before") == (-2, 6)
    assert "z.before" not in statistics.distributions
    statistics.check(graph)


@pytest.mark.parametrize(("large", "is_mask"), [(-1e4, True), (-3e38, True), (-100, False), (-2e3, False)])
def test_masks_of_finite_numbers(large, is_mask):
    scores = np.random.default_rng(0).standard_normal(1000, np.float32)
    assert Distribution.of(np.append(scores, np.float32(large))).is_mask is is_mask
    assert not Distribution.of(scores * np.float32(1e5)).is_mask


def test_there_must_be_data(graph):
    with pytest.raises(CompilerError, match="nothing to profile"):
        profile(graph, [])
    with pytest.raises(CompilerError, match="do not match the graph's"):
        profile(graph, [{}])
    with pytest.raises(CompilerError, match="was not profiled"):
        Profile("").range("x")
