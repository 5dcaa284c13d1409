"""Distributions and profiles: no count is lost, and two halves of the data are as good as all of it."""

import json

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.quantize import Distribution, Profile, profile
from mlhood.compiler.quantize.distribution import BINS
from mlhood.errors import CompilerError, OutputError

few = settings(max_examples=150, deadline=None, derandomize=True)
floats = st.floats(width=32, allow_nan=False, allow_infinity=False)
near = st.floats(-10, 10, width=32)
arrays = st.one_of(
    *(hnp.arrays(np.float32, st.integers(1, 40), elements=elements) for elements in (floats, near)),
    st.integers(0, 99).map(
        lambda seed: np.random.default_rng(seed).standard_normal(500, np.float32) * 10.0 ** (seed % 9)
    ),
)


@few
@given(x=arrays)
def test_every_element_is_counted_in_its_bin(x):
    found = Distribution.of(x)
    assert (found.low, found.high, found.count) == (x.min(), x.max(), x.size)
    assert len(found.counts) <= BINS
    assert found.counts[0] > 0
    assert found.counts[-1] > 0
    edges = found.edges
    for i in np.flatnonzero(found.counts):
        inside = (edges[i] <= x) & (x.astype(np.float64) < edges[i + 1])
        assert inside.sum() == found.counts[i]


@few
@given(x=arrays, y=arrays, z=arrays)
def test_a_merge_is_the_distribution_of_all_data(x, y, z):
    parts = [Distribution.of(one) for one in (x, y, z)]
    whole = Distribution.of(np.concatenate([x, y, z]))
    assert parts[0].merge(parts[1]).merge(parts[2]) == whole
    assert parts[2].merge(parts[0].merge(parts[1])) == whole


@few
@given(x=arrays)
def test_a_distribution_comes_back_from_json(x):
    found = Distribution.of(x)
    assert Distribution.from_json(json.loads(json.dumps(found.to_json())), "here") == found


def test_bins_are_fine_where_that_says_something():
    assert len(Distribution.of(np.linspace(0, 1, 9999, dtype=np.float32)).counts) > BINS // 2
    assert Distribution.of(np.zeros(7, np.float32)).counts.tolist() == [7]
    assert Distribution.of(np.full(7, 3e38, np.float32)).counts.tolist() == [7]


def test_coarser_keeps_the_counts():
    found = Distribution.of(np.linspace(-1, 2, 999, dtype=np.float32))
    coarse = found.coarser()
    assert coarse.count == 999
    assert coarse.edges[0] <= found.low
    assert len(coarse.counts) <= len(found.counts) // 2 + 1


@pytest.mark.parametrize(("x", "got"), [([1.0, np.nan], "1 nan"), ([np.inf, -np.inf], "2 inf"), ([], "no elements")])
def test_what_cannot_be_profiled(x, got):
    with pytest.raises(CompilerError, match=got):
        Distribution.of(np.array(x, np.float32))


# -- profiles


@pytest.fixture
def graph():
    made = Graph("small")
    x = made.placeholder("x", TensorType("float32", ("n", 3)))
    made.output(made.add(Relu(), x, name="relu", outputs=["y"]).outputs[0])
    return made


@pytest.fixture
def batches():
    draw = np.random.default_rng(0)
    return [{"x": draw.standard_normal((size, 3), np.float32) * size} for size in (4, 1, 9)]


def test_placeholders_and_results_are_profiled(graph, batches):
    found = profile(graph, batches)
    x = np.concatenate([batch["x"] for batch in batches])
    assert list(found.distributions) == ["x", "y"]
    assert found.range("x") == (x.min(), x.max())
    assert found.range("y") == (0, x.max())
    assert found.of("y").count == x.size


def test_profiles_of_two_runs_are_one_of_both(graph, batches):
    parts = [profile(graph, [batch]) for batch in batches]
    assert parts[0].merge(parts[1]).merge(parts[2]) == profile(graph, batches)


def test_a_profile_is_saved_and_read(graph, batches, tmp_path):
    found = profile(graph, batches)
    path = found.save(tmp_path / "small.json")
    assert Profile.load(path) == found
    assert profile(graph, batches).save(tmp_path / "again.json").read_bytes() == path.read_bytes()
    with pytest.raises(OutputError):
        found.save(tmp_path / "nowhere" / "small.json")


def test_a_profile_of_another_graph_is_refused(graph, batches):
    found = profile(graph, batches)
    found.check(graph)
    graph.rename_node(graph.nodes["relu"], "other")
    with pytest.raises(CompilerError, match="of another graph"):
        found.check(graph)
    with pytest.raises(CompilerError, match="two graphs"):
        found.merge(profile(graph, batches))


def test_the_first_value_that_is_no_number_is_named(graph, batches):
    batches[1]["x"][0, 2] = np.nan
    with pytest.raises(CompilerError, match="value 'x'") as error:
        profile(graph, batches)
    assert "1 nan and 0 inf among 3 elements" in str(error.value)


def test_there_must_be_data(graph):
    with pytest.raises(CompilerError, match="nothing to profile"):
        profile(graph, [])
    with pytest.raises(CompilerError, match="not the graph's inputs"):
        profile(graph, [{}])
    with pytest.raises(CompilerError, match="does not know this value"):
        Profile("").range("x")


GOOD = {"low": 0.0, "high": 0.0, "exponent": -149, "first": 0, "counts": [3]}
FILE = {"format": "mlhood profile 1", "graph": "abc", "values": {"x": GOOD}}


def test_the_file_that_the_damaged_ones_are_made_of(tmp_path):
    path = tmp_path / "good.json"
    path.write_text(json.dumps(FILE))
    assert Profile.load(path).of("x").count == 3


@pytest.mark.parametrize(
    "content",
    [
        "",
        "{",
        "[]",
        "[" * 100_000,
        "\x00",
        json.dumps({**FILE, "format": "mlhood profile 9"}),
        json.dumps({**FILE, "graph": 3}),
        json.dumps({**FILE, "values": []}),
        *(
            json.dumps({**FILE, "values": {"x": one}})
            for one in (
                None,
                [],
                {},
                {**GOOD, "extra": 1},
                {**GOOD, "low": "0"},
                {**GOOD, "low": 1.0},
                {**GOOD, "high": float("nan")},
                {**GOOD, "high": 1e308},
                {**GOOD, "exponent": 3},
                {**GOOD, "first": 10**30},
                {**GOOD, "counts": [1, 2]},
                {**GOOD, "counts": [-1]},
                {**GOOD, "counts": [0]},
                {**GOOD, "counts": [1.5]},
                {**GOOD, "counts": [2**70]},
                {**GOOD, "counts": "3"},
            )
        ),
    ],
)
def test_a_damaged_file_is_refused(content, tmp_path):
    path = tmp_path / "damaged.json"
    path.write_text(content)
    with pytest.raises(CompilerError):
        Profile.load(path)


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(CompilerError, match="cannot be read"):
        Profile.load(tmp_path / "none.json")
    with pytest.raises(CompilerError, match="cannot be read"):
        Profile.load(tmp_path)
