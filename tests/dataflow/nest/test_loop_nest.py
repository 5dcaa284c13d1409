"""Every step preserves the semantics or is rejected; counts against the program that a nest prints, and enumeration."""

from __future__ import annotations

import doctest
import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.dataflow import nest as package
from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.dataflow.nest import Nest, NestError, gemm, nest
from mlhood.measure.traffic import Counted
from tests.dataflow.cache.looked_up import access as look_up_access

EXTENT = st.integers(1, 6)
GEMM = gemm(12, 8, 6)
STATEMENTS = {"C[i, j] += A[i, k] * B[k, j]": "ijk", "y[i, j] += x[j] * w[i]": "ji", "y[i] += x[k, i]": "ki"}


@st.composite
def scheduled(draw) -> tuple[Nest, Nest]:
    """A nest before and after a few steps."""
    statement, loops = draw(st.sampled_from(list(STATEMENTS.items())))
    original = result = nest(statement, **{name: draw(EXTENT) for name in loops})
    for _ in range(draw(st.integers(0, 3))):
        name = draw(st.sampled_from(result.names))
        extent = result.extents[name]
        result = result.split(name, draw(st.sampled_from([n for n in range(1, extent + 1) if extent % n == 0])))
    return original, result.reorder(*draw(st.permutations(result.names)))


def elements(nest):
    """Yield the loops' values in order, and the index of each array."""
    for values in itertools.product(*(range(loop.extent) for loop in nest.loops)):
        origin = dict.fromkeys((name for name, _ in nest.domain), 0)
        for loop, value in zip(nest.loops, values, strict=True):
            origin[loop.origin] += loop.stride * value
        yield values, {each.array: tuple(origin[name] for name in each.index) for each in nest.accesses}


def run(nest, counted=lambda array: array):
    """Run the nest as it prints, on integers, and return its arrays."""
    rng = np.random.default_rng(0)
    arrays = {each.array: counted(rng.integers(-8, 9, nest.shape(each)).astype(np.float32)) for each in nest.inputs}
    arrays[nest.output.array] = counted(np.zeros(nest.shape(nest.output), np.float32))
    exec(str(nest), dict(arrays))
    return arrays


@settings(max_examples=60)
@given(case=scheduled())
def test_a_schedule_visits_every_point_once_in_its_order_and_computes_the_same(case):
    original, result = case
    assert sorted(map(tuple, result.visits().tolist())) == sorted(map(tuple, original.visits().tolist()))
    (name,) = {original.output.array}
    np.testing.assert_array_equal(run(result)[name], run(original)[name])
    first = result.inputs[0]
    columns = [[name for name, _ in result.domain].index(loop) for loop in first.index]
    assert [tuple(row) for row in result.visits()[:, columns].tolist()] == [
        at[first.array] for _, at in elements(result)
    ]


@settings(max_examples=40)
@given(case=scheduled())
def test_reads_are_those_of_the_program(case):
    counts, arrays = case[1].count(), run(case[1], Counted)
    assert counts.reads == {name: array.reads for name, array in arrays.items()}
    assert set(counts.reads.values()) == {counts.points}


@settings(max_examples=40)
@given(case=scheduled())
def test_levels_equal_an_enumeration_of_all_iterations(case):
    _, result = case
    for depth, level in enumerate(result.count().levels):
        for access in result.accesses:
            outside = list(result.loops[:depth])
            while outside and (outside[-1].origin not in access.index or outside[-1].extent == 1):
                outside.pop()
            tiles = {}
            for values, at in elements(result):
                tiles.setdefault(values[: len(outside)], set()).add(at[access.array])
            assert level.fetched[access.array] == sum(map(len, tiles.values()))
            held = {at[access.array] for values, at in elements(result) if not any(values[:depth])}
            assert level.tile[access.array] == len(held)
            assert level.written[access.array] == (level.fetched[access.array] if access is result.output else 0)


@pytest.mark.parametrize("inside", ["k_o", "j_i", "k_i"])
def test_a_cache_of_two_tiles_misses_what_a_level_fetches(inside):
    """It may miss less where a tile is reused before it is evicted, as inside i_i."""
    tiled = gemm(12, 12, 12).tile(i=4, j=4, k=4)
    level = tiled.count().level(inside)
    cache = Hierarchy([Level(2 * level.bytes)], line=4)
    for _, at in elements(tiled):
        for number, access in enumerate(tiled.accesses):
            offset = int(np.ravel_multi_index(at[access.array], tiled.shape(access)))
            look_up_access(cache, [(number << 20) + 4 * offset], 4)
    assert cache.hits.memory == sum(level.fetched.values())


def test_a_product_counted_by_hand():
    """C is stationary while k is innermost; with k outermost it is fetched and written back in every iteration."""
    inner, outer = gemm(4, 5, 6).count(), gemm(4, 5, 6).reorder("k", "i", "j").count()
    assert inner.level("k").fetched == {"A": 120, "B": 120, "C": 20}
    assert outer.level("j").fetched == {"A": 24, "B": 120, "C": 120}
    assert inner.reuse("C", "k") == 6
    assert inner.level("(all)").bytes == 4 * (24 + 30 + 20)
    assert inner.level("(all)").traffic == 4 * (24 + 30 + 2 * 20)


def test_tile_is_split_and_reorder():
    by_hand = GEMM.split("i", 4).split("k", 3).reorder("i_o", "j", "k_o", "i_i", "k_i")
    assert GEMM.tile(i=4, k=3) == by_hand
    assert GEMM.tile(i=4, j=4).names == ("i_o", "j_o", "i_i", "j_i", "k")
    assert GEMM.tile() == GEMM


def test_reorder_moves_only_the_listed_loops():
    assert GEMM.reorder("k", "i").names == ("k", "j", "i")
    assert GEMM.reorder() == GEMM


def test_the_example_in_the_package_docstring():
    assert doctest.testmod(package) == (0, 2)


ERRORS = {
    "unknown loop": (lambda: GEMM.split("x", 2), "unknown loop"),
    "no divisor": (lambda: GEMM.split("i", 5), "a divisor of its extent: 1, 2, 3, 4, 6, 12"),
    "not an integer": (lambda: GEMM.split("i", 2.0), "invalid split factor"),
    "unknown loop of a tile": (lambda: GEMM.tile(x=2), "unknown loop"),
    "loop twice": (lambda: GEMM.reorder("i", "i"), "listed twice"),
    "too many visits": (lambda: gemm(1 << 10, 1 << 10, 2).visits(), "too many points to list"),
    "an assignment": (lambda: nest("C[i] = A[i]", i=4), "must add a product"),
    "a scalar": (lambda: nest("C[i] += A[i] * 2", i=4), "must add a product"),
    "an array twice": (lambda: nest("C[i] += C[i]", i=4), "must add a product"),
    "an unknown loop": (lambda: nest("C[i] += A[k]", i=4), "indices are not the loops"),
    "an unused loop": (lambda: nest("C[i] += A[i]", i=4, j=4), "indices are not the loops"),
    "no extent": (lambda: nest("C[i] += A[i]", i=0), "invalid extent"),
}


@pytest.mark.parametrize("case", ERRORS)
def test_what_is_invalid_is_rejected(case):
    make, message = ERRORS[case]
    with pytest.raises(NestError, match=message):
        make()
