"""The analysis: the paper's example exactly, choices that fit, and what fits."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.dataflow.slicing.analysis import analyse, check, group_sizes, needs
from mlhood.dataflow.slicing.caches import Caches, declared
from mlhood.dataflow.slicing.problem import ORDERS, Problem, Slicing
from mlhood.errors import SlicingError

PAPER = Problem(256, 32, (3, 3), (75, 75), window=16, filter_tile=8)
PAPER_CACHES = declared("32KiB,1MiB,4MiB", fill=0.9)


def small_problems():
    size = st.integers(1, 9)
    kernel = st.tuples(st.integers(1, 3), st.integers(1, 3))
    tile = (st.integers(1, 6), st.integers(1, 6))
    return st.builds(Problem, st.integers(1, 20), st.integers(1, 12), kernel, st.tuples(size, size), *tile)


def small_caches():
    size = st.integers(300, 20_000)
    fill = st.sampled_from([0.5, 0.9, 1.0])
    return st.builds(lambda sizes, fill: Caches(tuple(sorted(sizes)), fill, 16), st.tuples(size, size, size), fill)


def analysed(problem, caches):
    try:
        return analyse(problem, caches)
    except SlicingError:
        return None


def test_the_papers_example():
    assert analyse(PAPER, PAPER_CACHES).slicing == Slicing("IS", 32, 32, 87)
    tile_in, tile_w, tile_out = 16 * 9 * 4 * 32, 8 * 9 * 4 * 32, 16 * 8 * 4
    assert needs(PAPER, "IS", 32, 32, 87) == (
        tile_in + tile_w + tile_out,
        tile_in + 32 * (tile_w + tile_out),
        87 * tile_in + 32 * tile_w + 32 * 87 * tile_out,
    )


def test_the_papers_example_weight_stationary():
    slicing, _ = analyse(PAPER, PAPER_CACHES).candidates["WS"]
    assert slicing == Slicing("WS", 32, 43, 32)
    tile_in, tile_w, tile_out = 16 * 9 * 4 * 32, 8 * 9 * 4 * 32, 16 * 8 * 4
    assert needs(PAPER, "WS", 32, 43, 32) == (
        tile_in + tile_w + tile_out,
        43 * (tile_in + tile_out) + tile_w,
        43 * tile_in + 32 * tile_w + 43 * 32 * tile_out,
    )


@pytest.mark.parametrize(("fill", "tiles"), [(1.0, (32, 32, 87)), (0.5, (16, 32, 43)), (0.25, (8, 32, 43))])
def test_smaller_caches_get_smaller_tiles(fill, tiles):
    assert analyse(PAPER, declared("32KiB,1MiB,4MiB", fill)).candidates["IS"][0].tiles == tiles


@given(small_problems(), small_caches())
@settings(max_examples=200)
def test_the_choice_fits_and_is_the_cheaper_order(problem, caches):
    analysis = analysed(problem, caches)
    if analysis is None:
        least = [needs(problem, order, 1, 1, 1) for order in ORDERS]
        assert all(any(need > room for need, room in zip(needed, caches.rooms, strict=True)) for needed in least)
        return
    for slicing, predicted in analysis.candidates.values():
        check(problem, slicing, caches)
        assert predicted.cycles >= analysis.traffic.cycles
        levels = (predicted.l1, predicted.l2, predicted.l3, predicted.memory)
        assert min(levels) >= 0
        assert predicted.cycles == sum(n * cycles for n, cycles in zip(levels, caches.latencies, strict=True))


def test_a_convolution_of_one_element_loads_it_once():
    predicted = analyse(Problem(1, 1, (1, 1), (1, 1), 16, 16), PAPER_CACHES).traffic
    assert (predicted.l1, predicted.l2, predicted.l3, predicted.memory) == (0, 0, 0, 1 + 1 + 16)


def test_group_sizes_are_the_smallest_for_each_number_of_groups():
    for count in (1, 2, 10, 97):
        by_groups = {}
        for size in range(count, 0, -1):
            by_groups[-(-count // size)] = size
        assert group_sizes(count).tolist() == sorted(by_groups.values())


def test_the_error_of_an_illegal_slicing_names_the_caches_and_the_excess():
    with pytest.raises(SlicingError, match="do not fit into L2 and L3") as caught:
        check(PAPER, Slicing("WS", 32, 300, 32), PAPER_CACHES)
    over = 300 * (16 * 9 * 4 * 32 + 512) + 8 * 9 * 4 * 32 - 943_718
    assert f"L2 needs {over + 943_718:,} bytes, {over:,} more than 943,718 (1 MiB filled to 0.9)" in str(caught.value)


@pytest.mark.parametrize("tiles", [(0, 1, 1), (33, 1, 1), (1, 33, 1), (1, 1, 353), (1, 0, 1), (1, 1, 0)])
def test_tile_sizes_out_of_range_are_rejected(tiles):
    with pytest.raises(SlicingError, match="out of range"):
        check(PAPER, Slicing("IS", *tiles), PAPER_CACHES)


def test_a_cache_too_small_for_one_channel_is_named():
    with pytest.raises(SlicingError, match="not even the smallest tiles fit into L1"):
        analyse(PAPER, declared("512,1MiB,4MiB"))
