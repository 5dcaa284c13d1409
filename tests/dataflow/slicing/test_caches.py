"""Caches, declared and of the machine."""

import math

import pytest

from mlhood.dataflow.slicing import caches
from mlhood.dataflow.slicing.caches import Caches, declared, of_machine
from mlhood.errors import SlicingError
from mlhood.measure.machine import facts


def test_sizes_are_parsed_in_any_unit():
    assert declared("32KiB,1MiB,4MiB").sizes == (32 * 1024, 1024**2, 4 * 1024**2)
    assert declared("48kib, 1.25MiB, 1GiB").sizes == (48 * 1024, 1_310_720, 1024**3)
    assert declared("32768,262144 B,-").sizes == (32768, 262_144, None)


def test_rooms_are_sizes_times_fill():
    assert declared("32KiB,1MiB,4MiB", 0.9).rooms == (29_491, 943_718, 3_774_873)
    assert declared("1KiB,2KiB,-", 1.0).rooms == (1024, 2048, math.inf)


@pytest.mark.parametrize("text", ["32KiB,1MiB", "", "a,b,c", "32KB,1MB,4MB", "1MiB,32KiB,4MiB", "0,1KiB,1KiB"])
def test_invalid_caches_are_rejected(text):
    with pytest.raises(SlicingError):
        declared(text)


@pytest.mark.parametrize("fill", [0, 1.1, -1, math.nan])
def test_an_invalid_fill_is_rejected(fill):
    with pytest.raises(SlicingError, match="fill"):
        declared("32KiB,1MiB,4MiB", fill)


@pytest.mark.parametrize("line", [0, 48, 2])
def test_an_invalid_line_size_is_rejected(line):
    with pytest.raises(SlicingError, match="line"):
        declared("32KiB,1MiB,4MiB", line=line)


def test_the_machines_caches_come_from_its_facts(monkeypatch):
    class Machine:
        caches = facts.CacheSizes(l1d=32768, l2=None, l3=2**20, line=128)

    monkeypatch.setattr(caches, "machine", Machine)
    assert of_machine(0.5) == Caches((32768, None, 2**20), 0.5, 128)
