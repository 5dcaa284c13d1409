"""The simulator against a plain LRU in Python, closed forms, and valgrind's cachegrind."""

import re
import shutil
import subprocess
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.dataflow.cache.hierarchy import Hierarchy, Level
from mlhood.errors import CacheError
from tests.dataflow.cache.looked_up import access
from tests.waiting import PATIENCE


class PlainLevel:
    """A level of cache by definition: a dictionary per set, the most recently used line last."""

    def __init__(self, sets, ways):
        self.ways = ways
        self.sets = [OrderedDict() for _ in range(sets)]

    def look_up(self, line):
        cached = self.sets[line % len(self.sets)]
        hit = cached.pop(line, False)
        cached[line] = True
        if len(cached) > self.ways:
            cached.popitem(last=False)
        return hit


def plain_hits(levels, line_bytes, addresses, sizes):
    caches = [PlainLevel(level.sets(line_bytes), level.ways or level.size // line_bytes) for level in levels]
    hits = [0] * (len(caches) + 1)
    for address, size in zip(addresses, sizes, strict=True):
        farthest = 0
        for line in range(address // line_bytes, (address + size - 1) // line_bytes + 1):
            farthest = max(farthest, next((i for i, cache in enumerate(caches) if cache.look_up(line)), len(caches)))
        hits[farthest] += 1
    return hits


@st.composite
def hierarchies(draw):
    line = draw(st.sampled_from([16, 64]))
    levels = []
    for _ in range(draw(st.integers(1, 3))):
        sets, ways = draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 6))
        levels.append(Level(line * sets * ways, ways if draw(st.booleans()) or sets > 1 else None))
    return levels, line


@given(hierarchies(), st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 100)), max_size=300))
@settings(max_examples=150)
def test_it_counts_as_a_plain_lru(caches, accesses):
    levels, line = caches
    addresses, sizes = [address for address, _ in accesses], [size for _, size in accesses]
    hierarchy = Hierarchy(levels, line)
    access(hierarchy, np.array(addresses, np.int64), np.array(sizes, np.int64))
    hits = hierarchy.hits
    assert [*hits.levels, hits.memory] == plain_hits(levels, line, addresses, sizes)
    assert hits.accesses == len(accesses)


def test_lines_stay_cached_between_calls():
    hierarchy = Hierarchy([Level(128, 2)])
    for _ in range(2):
        access(hierarchy, np.array([0, 64]))
    assert (hierarchy.hits.levels, hierarchy.hits.memory) == ((2,), 2)


def test_a_loop_that_fits_misses_once_and_a_larger_one_always():
    lines = np.arange(64) * 64
    hierarchy = Hierarchy([Level(4096, 4), Level(16384, 8), Level(65536, 16)])
    for _ in range(10):
        access(hierarchy, lines)
    assert hierarchy.hits.into == (64, 64, 64)
    hierarchy = Hierarchy([Level(4096), Level(16384)])
    for _ in range(10):
        access(hierarchy, np.arange(65) * 64)  # one line more than L1 has: LRU evicts the line that is needed next
    assert hierarchy.hits.into == (650, 65)


def test_a_column_with_a_power_of_two_stride_conflicts_in_one_set():
    column = np.arange(16) * 4096  # 4096 bytes apart: the same set of 64 sets of 64-byte lines
    for ways, misses in ((8, 160), (16, 16)):
        hierarchy = Hierarchy([Level(64 * 64 * ways, ways)])
        for _ in range(10):
            access(hierarchy, column)
        assert hierarchy.hits.memory == misses


def test_the_naive_product_misses_as_in_its_closed_form():
    """c[i, j] += a[i, k] * b[k, j], n = 32, 16 lines of 64 bytes: down a column of b, each load misses."""
    n = 32
    i, j, k = np.meshgrid(*[np.arange(n)] * 3, indexing="ij")
    a, b = (i * n + k) * 4, n * n * 4 + (k * n + j) * 4
    hierarchy = Hierarchy([Level(16 * 64)])
    access(hierarchy, np.stack([a, b], -1).ravel())
    lines_of_a_row = n * 4 // 64
    assert hierarchy.hits.memory == n**3 + n * n * lines_of_a_row


@pytest.mark.parametrize("levels", [[], [Level(0)], [Level(100)], [Level(64 * 6, 2)], [Level(4096, 7)]])
def test_an_invalid_hierarchy_is_rejected(levels):
    with pytest.raises(CacheError):
        Hierarchy(levels)


def test_an_invalid_line_size_is_rejected():
    with pytest.raises(CacheError, match="cache line"):
        Hierarchy([Level(4096)], line=48)


# -- valgrind


def valgrind(*arguments):
    """Return valgrind's output for a small program."""
    command = ["valgrind", *arguments, shutil.which("true") or "true"]
    result = subprocess.run(command, capture_output=True, text=True, check=False, timeout=PATIENCE)
    if result.returncode:
        pytest.skip(f"valgrind fails here: {result.stderr[-200:]}")
    return result.stderr


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_it_counts_as_cachegrind():
    caches = ("--I1=2048,2,64", "--D1=4096,4,64", "--LL=65536,8,64")
    report = valgrind("--tool=cachegrind", "--cache-sim=yes", *caches, "--cachegrind-out-file=/dev/null")
    trace = re.findall(r"^(I |\s[LSM]) +([0-9a-f]+),(\d+)$", valgrind("--tool=lackey", "--trace-mem=yes"), re.MULTILINE)
    for kind, name, level in (("I", "I1  misses", Level(2048, 2)), ("LSM", "D1  misses", Level(4096, 4))):
        accesses = [(int(address, 16), int(size)) for access, address, size in trace if access.strip() in kind]
        hierarchy = Hierarchy([level])
        access(hierarchy, *np.array(accesses).T)
        (counted,) = re.findall(rf"{name}: +([\d,]+)", report)
        assert hierarchy.hits.memory == int(counted.replace(",", ""))
