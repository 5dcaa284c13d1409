"""Counts against the program run on counting arrays, against enumeration of all iterations, and against literature."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings

from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.dataflow.nest import NestError, gemm, nest
from mlhood.measure.traffic import Counted
from tests.dataflow.cache.looked_up import access as look_up_access

from .cases import conv2d, integers, iterations, scheduled


def count_by_running(nest):
    """Count the reads and writes of all arrays while the nest runs as it prints."""
    arrays = integers(nest) | {nest.output.array: np.zeros(nest.output.shape, np.float32)}
    counted = {name: Counted(array) for name, array in arrays.items()}
    exec(str(nest), dict(counted))
    reads = {name: array.reads for name, array in counted.items()}
    return reads, {name: array.writes for name, array in counted.items()}


@settings(max_examples=50)
@given(case=scheduled())
def test_reads_and_writes_are_those_of_the_program(case):
    counts = case[1].count()
    assert (counts.reads, counts.writes) == count_by_running(case[1])
    assert counts.points == len(list(iterations(case[1])))


def tile_and_fetched(nest, access, depth):
    """Enumerate a level's tile and what it fetches: a tile for each iteration of the loops that change it."""
    outside = list(nest.names[:depth])
    while outside and (outside[-1] not in access.loops or nest.extents[outside[-1]] == 1):
        outside.pop()
    tiles, first = {}, set()
    for point in iterations(nest):
        element = tuple(axis.evaluate(point) for axis in access.index)
        tiles.setdefault(tuple(point[name] for name in outside), set()).add(element)
        if not any(point[name] for name in nest.names[:depth]):
            first.add(element)
    return len(first), sum(map(len, tiles.values()))


@settings(max_examples=50)
@given(case=scheduled())
def test_levels_equal_an_enumeration_of_all_iterations(case):
    _, result = case
    counts = result.count()
    for depth, level in enumerate(counts.levels):
        for access in result.accesses:
            name = access.array
            assert (level.tile[name], level.fetched[name]) == tile_and_fetched(result, access, depth)
            assert level.written[name] == (level.fetched[name] if access is result.output else 0)


@settings(max_examples=50)
@given(case=scheduled())
def test_outer_levels_fetch_no_more(case):
    counts = case[1].count()
    for name in counts.reads:
        fetched = [level.fetched[name] for level in counts.levels]
        assert fetched == sorted(fetched)
        assert fetched[-1] <= counts.reads[name]


def test_a_weight_stationary_array_moves_what_scale_sim_counts():
    """AlexNet's first layer on 32 x 32: 227 x 227 x 3, 96 filters of 11 x 11, stride 4 (Samajdar et al., 2020)."""
    layer = gemm(55 * 55, 96, 11 * 11 * 3).tile("guard", k=32, j=32).reorder("k_o", "j_o", "i")
    level = layer.count().level("i")
    assert level.fetched == {"A": 3_294_225, "B": 34_848, "C": 3_484_800}


@pytest.mark.parametrize("inside", ["k_o", "j_i", "k_i"])
def test_a_cache_of_two_tiles_misses_what_a_level_fetches(inside):
    """It may miss less where a tile is reused before it is evicted, as inside i_i."""
    tiled = gemm(12, 12, 12).tile(i=4, j=4, k=4)
    level = tiled.count().level(inside)
    cache = Hierarchy([Level(2 * level.bytes)], line=4)
    for point in iterations(tiled):
        for number, access in enumerate(tiled.accesses):
            index = [axis.evaluate(point) for axis in access.index]
            offset = int(np.ravel_multi_index(index, access.shape))
            look_up_access(cache, [(number << 20) + 4 * offset], 4)
    assert cache.hits.memory == sum(level.fetched.values())


def test_a_product_counted_by_hand():
    """C is stationary while k is innermost; with k outermost it is fetched and written back in every iteration."""
    inner, outer = gemm(4, 5, 6).count(), gemm(4, 5, 6).reorder("k", "i", "j").count()
    assert inner.points == outer.points == 120
    assert inner.reads == outer.reads == {"A": 120, "B": 120, "C": 120}
    assert inner.level("k").fetched == {"A": 120, "B": 120, "C": 20}
    assert outer.level("j").fetched == {"A": 24, "B": 120, "C": 120}
    assert inner.reuse("C", "k") == 6
    assert inner.level("(all)").bytes == 4 * (24 + 30 + 20)
    assert inner.level("(all)").traffic == 4 * (24 + 30 + 2 * 20)


def test_overlapping_windows_share_elements():
    counts = conv2d((2, 6, 6), (4, 2, 3, 3)).count()
    assert counts.level("f").tile == {"x": 72, "w": 18, "y": 16}
    assert counts.level("oh").tile == {"x": 2 * 3 * 6, "w": 18, "y": 4}
    assert counts.level("oh").fetched["x"] == 4 * 4 * 2 * 3 * 6


def test_the_table_and_the_text_agree():
    counts = gemm(4, 4, 4).count()
    table = counts.table()
    assert list(table["level inside"].unique()) == ["(all)", "i", "j", "k"]
    row = table[(table["level inside"] == "j") & (table["array"] == "B")].iloc[0]
    assert (row["tile"], row["fetched"], row["reuse"]) == (4, 64, 1.0)
    assert "64 multiply-adds" in str(counts)
    assert len(str(counts).splitlines()) == 1 + 3 + 1 + len(table)


@pytest.mark.parametrize(("array", "inside"), [("A", "x"), ("D", "i")])
def test_unknown_arrays_and_levels_are_rejected(array, inside):
    with pytest.raises(NestError, match="unknown"):
        gemm(4, 4, 4).count().reuse(array, inside)


def test_too_many_points_of_connected_loops_are_rejected():
    connected = nest("y[0] += x[i + j + k]", i=1 << 9, j=1 << 9, k=1 << 9)
    with pytest.raises(NestError, match="count these loops jointly"):
        connected.count()
