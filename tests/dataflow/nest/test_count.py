"""Counts: against the program itself with arrays that count, against rounds one by one, and against the literature."""

from __future__ import annotations

from collections import Counter, OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings

from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.dataflow.nest import NestError, conv2d, gemm, nest
from mlhood.measure.traffic import Counted

from .cases import integers, rounds, scheduled


def by_running(made):
    """Reads and writes of all arrays, counted while the generated Python runs."""
    scope, given_arrays = {}, integers(made)
    exec(made.source(), scope)
    shapes = {made.output.array: made.output.shape} | {pack.buffer.array: pack.shape for pack in made.packs}
    arrays = given_arrays | {name: np.zeros(shape, np.float32) for name, shape in shapes.items()}
    counted = {name: Counted(arrays[name], name) for name in made.arrays}
    scope["run"](*counted.values())
    reads = {name: one.reads for name, one in counted.items()}
    return reads, {name: one.writes for name, one in counted.items()}


@settings(max_examples=50, deadline=None)
@given(case=scheduled())
def test_reads_and_writes_are_those_of_the_program(case):
    counts = case[1].count()
    assert (counts.reads, counts.writes) == by_running(case[1])
    assert counts.points == len(list(rounds(case[1])))


def held(made, access, depth):
    """A level's tile and what it fetches, by going through all rounds: a tile a round of the loops that change it."""
    outside = list(made.names[:depth])
    while outside and (outside[-1] not in access.loops or made.extents[outside[-1]] == 1):
        outside.pop()
    tiles, first = {}, set()
    for point in rounds(made):
        element = tuple(axis.at(point) for axis in access.index)
        tiles.setdefault(tuple(point[name] for name in outside), set()).add(element)
        if not any(point[name] for name in made.names[:depth]):
            first.add(element)
    return len(first), sum(map(len, tiles.values()))


@settings(max_examples=50, deadline=None)
@given(case=scheduled(packing=False))
def test_levels_are_what_going_through_all_rounds_gives(case):
    _, made = case
    counts = made.count()
    for depth, level in enumerate(counts.levels):
        for access in made.accesses:
            name = access.array
            assert (level.tile[name], level.fetched[name]) == held(made, access, depth)
            assert level.written[name] == (level.fetched[name] if access is made.output else 0)


@settings(max_examples=50, deadline=None)
@given(case=scheduled())
def test_memories_further_out_fetch_no_more(case):
    counts = case[1].count()
    for pack in case[1].packs:
        assert counts.reads[pack.buffer.array] >= counts.levels[-1].fetched[pack.buffer.array]
    for name in case[1].arrays:
        fetched = [level.fetched[name] for level in counts.levels]
        assert fetched == sorted(fetched)
        assert fetched[-1] <= counts.reads[name]


def test_a_weight_stationary_array_moves_what_scale_sim_counts():
    """AlexNet's first layer on 32 x 32: 227 x 227 x 3, 96 filters of 11 x 11, stride 4 (Samajdar et al., 2020)."""
    layer = gemm(55 * 55, 96, 11 * 11 * 3).tile("guard", k=32, j=32).reorder("k_o", "j_o", "i")
    level = layer.count().level("i")
    assert level.fetched == {"A": 3_294_225, "B": 34_848, "C": 3_484_800}


def misses(made, size):
    """What a cache of `size` elements lacks that evicts the least recently used."""
    held, lacked = OrderedDict(), Counter()
    for chunk in made.addresses():
        for place in zip((chunk.names[one] for one in chunk.array), chunk.element.tolist(), strict=True):
            lacked[place[0]] += place not in held
            held[place] = True
            held.move_to_end(place)
            if len(held) > size:
                held.popitem(last=False)
    return dict(lacked)


@pytest.mark.parametrize("inside", ["k_o", "j_i", "k_i"])
def test_a_cache_with_room_for_two_tiles_lacks_what_a_level_fetches(inside):
    """It may lack less, where a tile comes back before it is evicted, as inside i_i."""
    made = gemm(12, 12, 12).tile(i=4, j=4, k=4)
    level = made.count().level(inside)
    assert misses(made, 2 * sum(level.tile.values())) == level.fetched
    simulated = Hierarchy([Level(2 * level.bytes)], line=4)
    for chunk in made.addresses():
        simulated.access(chunk.bytes(made.layout(4)), 4)
    assert simulated.served.memory == sum(level.fetched.values())


def test_by_hand():
    """C is kept while k runs in the innermost loop; in the outermost it comes and goes in every round."""
    inner, outer = gemm(4, 5, 6).count(), gemm(4, 5, 6).reorder("k", "i", "j").count()
    assert inner.points == outer.points == 120
    assert inner.reads == outer.reads == {"A": 120, "B": 120, "C": 120}
    assert inner.level("k").fetched == {"A": 120, "B": 120, "C": 20}
    assert outer.level("j").fetched == {"A": 24, "B": 120, "C": 120}
    assert inner.reuse("C", "k") == 6
    assert inner.level("(all)").bytes == 4 * (24 + 30 + 20)
    assert inner.level("(all)").traffic == 4 * (24 + 30 + 2 * 20)


def test_windows_overlap():
    counts = conv2d((1, 2, 6, 6), (4, 2, 3, 3)).count()
    assert counts.level("f").tile == {"x": 72, "w": 18, "y": 16}
    assert counts.level("oh").tile == {"x": 2 * 3 * 6, "w": 18, "y": 4}
    assert counts.level("oh").fetched["x"] == 4 * 4 * 2 * 3 * 6


def test_a_packed_copy_costs_nothing_further_out():
    made = gemm(8, 8, 8).tile(i=4, k=4).reorder("k_o", "i_o", "j", "i_i", "k_i").pack("A", at="i_o").pack("B", at="k_o")
    counts = made.count()
    assert (counts.reads["A"], counts.writes["A_packed"], counts.reads["A_packed"]) == (64, 64, 512)
    assert counts.level("k_o").fetched["A_packed"] == 0
    assert counts.level("j").fetched == {"A": 64, "B": 64, "C": 2 * 64, "A_packed": 64, "B_packed": 64 * 2}
    assert counts.level("i_i").fetched["A_packed"] == 64 * 8
    assert counts.reuse("A_packed", "k_o") == float("inf")


def test_tiles_of_sliced_convolution():
    """Its worked example fills a first-level cache: Nwin 16, Nf 8, Nc 32 of 3 x 3 (Ferrari et al., SConv, 2023)."""
    made = conv2d((1, 32, 77, 77), (256, 32, 3, 3)).split("ow", 16, "guard").split("f", 8)
    made = made.reorder("n", "f_o", "oh", "ow_o", "c", "kh", "kw", "f_i", "ow_i").pack("x", "ow_o").pack("w", "ow_o")
    tile = made.count().level("ow_o").tile
    assert (tile["x_packed"], tile["w_packed"], tile["y"]) == (16 * 9 * 32, 8 * 9 * 32, 16 * 8)
    assert 4 * (tile["x_packed"] + tile["w_packed"] + tile["y"]) <= 0.9 * (32 << 10)


def test_the_table_and_the_text_say_the_same():
    counts = gemm(4, 4, 4).count()
    table = counts.table()
    assert list(table["level inside"].unique()) == ["(all)", "i", "j", "k"]
    row = table[(table["level inside"] == "j") & (table["array"] == "B")].iloc[0]
    assert (row["tile"], row["fetched"], row["reuse"]) == (4, 64, 1.0)
    assert "64 multiply-adds" in str(counts)
    assert len(str(counts).splitlines()) == 1 + 3 + 1 + len(table)


@pytest.mark.parametrize(("array", "inside"), [("A", "x"), ("D", "i")])
def test_what_is_not_counted_is_not_told(array, inside):
    with pytest.raises(NestError, match="there is no such"):
        gemm(4, 4, 4).count().reuse(array, inside)


def test_loops_that_cannot_be_counted_apart_are_refused_when_they_are_many():
    joined = nest("y[0] += x[i + j + k]", i=1 << 9, j=1 << 9, k=1 << 9)
    with pytest.raises(NestError, match="counted together"):
        joined.count()
