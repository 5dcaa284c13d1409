"""The simulator: as a plain LRU in Python, as closed forms, and as valgrind's cachegrind counts."""

import re
import shutil
import subprocess
from collections import OrderedDict

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.dataflow.cache.hierarchy import CacheError, Hierarchy, Level


class PlainLevel:
    """A level of cache by the definition: a dictionary a set, the latest line last."""

    def __init__(self, sets, ways):
        self.ways = ways
        self.sets = [OrderedDict() for _ in range(sets)]

    def holds(self, line):
        held = self.sets[line % len(self.sets)]
        found = held.pop(line, False)
        held[line] = True
        if len(held) > self.ways:
            held.popitem(last=False)
        return found


def plain(levels, line, addresses, sizes):
    made = [PlainLevel(level.sets(line), level.ways or level.size // line) for level in levels]
    served = [0] * (len(made) + 1)
    for address, size in zip(addresses, sizes, strict=True):
        farthest = 0
        for number in range(address // line, (address + size - 1) // line + 1):
            farthest = max(farthest, next((n for n, level in enumerate(made) if level.holds(number)), len(made)))
        served[farthest] += 1
    return served


@st.composite
def hierarchies(draw):
    line = draw(st.sampled_from([16, 64]))
    levels = []
    for _ in range(draw(st.integers(1, 3))):
        sets, ways = draw(st.sampled_from([1, 2, 8])), draw(st.integers(1, 6))
        levels.append(Level(line * sets * ways, ways if draw(st.booleans()) or sets > 1 else None))
    return levels, line


@given(hierarchies(), st.lists(st.tuples(st.integers(0, 2000), st.integers(1, 100)), max_size=300))
@settings(deadline=None, max_examples=150)
def test_it_counts_as_a_plain_lru(made, accesses):
    levels, line = made
    addresses, sizes = [one[0] for one in accesses], [one[1] for one in accesses]
    hierarchy = Hierarchy(levels, line)
    hierarchy.access(np.array(addresses, np.int64), np.array(sizes, np.int64))
    served = hierarchy.served
    assert [*served.levels, served.memory] == plain(levels, line, addresses, sizes)
    assert served.accesses == len(accesses)


def test_what_it_holds_outlasts_a_call():
    hierarchy = Hierarchy([Level(128, 2)])
    for _ in range(2):
        hierarchy.access(np.array([0, 64]))
    assert (hierarchy.served.levels, hierarchy.served.memory) == ((2,), 2)


def test_a_loop_that_fits_misses_once_and_one_that_does_not_always():
    lines = np.arange(64) * 64
    hierarchy = Hierarchy([Level(4096, 4), Level(16384, 8), Level(65536, 16)])
    for _ in range(10):
        hierarchy.access(lines)
    assert hierarchy.served.into == (64, 64, 64)
    hierarchy = Hierarchy([Level(4096), Level(16384)])
    for _ in range(10):
        hierarchy.access(np.arange(65) * 64)  # one line more than the first level has: LRU evicts what comes next
    assert hierarchy.served.into == (650, 65)


def test_columns_of_a_power_of_two_fight_for_one_set():
    column = np.arange(16) * 4096  # 4096 bytes apart: the same set of 64 sets of 64-byte lines
    for ways, misses in ((8, 160), (16, 16)):
        hierarchy = Hierarchy([Level(64 * 64 * ways, ways)])
        for _ in range(10):
            hierarchy.access(column)
        assert hierarchy.served.memory == misses


def test_the_naive_product_misses_as_its_closed_form_says():
    """c[i, j] += a[i, k] * b[k, j], n = 32, 16 lines of 64 bytes: down a column of b, each load is a new line."""
    n = 32
    i, j, k = np.meshgrid(*[np.arange(n)] * 3, indexing="ij")
    a, b = (i * n + k) * 4, n * n * 4 + (k * n + j) * 4
    hierarchy = Hierarchy([Level(16 * 64)])
    hierarchy.access(np.stack([a, b], -1).ravel())
    lines_of_a_row = n * 4 // 64
    assert hierarchy.served.memory == n**3 + n * n * lines_of_a_row


@pytest.mark.parametrize("levels", [[], [Level(0)], [Level(100)], [Level(64 * 6, 2)], [Level(4096, 7)]])
def test_what_is_no_cache_is_refused(levels):
    with pytest.raises(CacheError):
        Hierarchy(levels)


@pytest.mark.parametrize(("addresses", "sizes"), [([-1], 1), ([0], 0), ([0, 5], [1, -1])])
def test_what_is_no_access_is_refused(addresses, sizes):
    with pytest.raises(CacheError, match="no access"):
        Hierarchy([Level(4096)]).access(np.array(addresses), np.array(sizes))


def test_a_line_that_is_none_is_refused():
    with pytest.raises(CacheError, match="cache line"):
        Hierarchy([Level(4096)], line=48)


def test_no_access_counts_nothing():
    hierarchy = Hierarchy([Level(4096)])
    hierarchy.access(np.array([], np.int64))
    assert hierarchy.served.accesses == 0


# -- valgrind


def valgrind(*arguments):
    """Return what valgrind says about a small program."""
    command = ["valgrind", *arguments, shutil.which("true") or "true"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)
    if done.returncode:
        pytest.skip(f"valgrind does not run here: {done.stderr[-200:]}")
    return done.stderr


@pytest.mark.skipif(shutil.which("valgrind") is None, reason="valgrind is not installed")
def test_it_counts_as_cachegrind():
    said = valgrind("--tool=cachegrind", "--cache-sim=yes", "--I1=2048,2,64", "--D1=4096,4,64", "--LL=65536,8,64",
                    "--cachegrind-out-file=/dev/null")  # fmt: skip
    trace = re.findall(r"^(I |\s[LSM]) +([0-9a-f]+),(\d+)$", valgrind("--tool=lackey", "--trace-mem=yes"), re.MULTILINE)
    for kind, name, level in (("I", "I1  misses", Level(2048, 2)), ("LSM", "D1  misses", Level(4096, 4))):
        accesses = [(int(address, 16), int(size)) for what, address, size in trace if what.strip() in kind]
        hierarchy = Hierarchy([level])
        hierarchy.access(*np.array(accesses).T)
        (counted,) = re.findall(rf"{name}: +([\d,]+)", said)
        assert hierarchy.served.memory == int(counted.replace(",", ""))
