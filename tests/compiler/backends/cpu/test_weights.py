"""Packed weights: made once, and found again on disk by their content."""

import os

import numpy as np
import pytest

from mlhood.compiler.backends.cpu import machine
from mlhood.compiler.backends.cpu.machine import SMALLEST, WeightCache

SIZE = SMALLEST // 4


def counted():
    calls = []

    def pack(source):
        def run():
            calls.append(1)
            return np.ascontiguousarray(source[::-1])

        return run

    return calls, pack


def weight(seed):
    return np.random.default_rng(seed).standard_normal(SIZE).astype(np.float32)


def test_a_weight_is_packed_once_in_all_processes(tmp_path):
    calls, pack = counted()
    w = weight(0)
    for _ in range(2):
        packed = WeightCache(tmp_path)
        for _ in range(2):
            np.testing.assert_array_equal(packed.packed(w, "reversed", pack(w)), w[::-1])
    assert len(calls) == 1
    copy = w.copy()
    np.testing.assert_array_equal(WeightCache(tmp_path).packed(copy, "reversed", pack(copy)), w[::-1])
    assert len(calls) == 1


@pytest.mark.parametrize("change", ["content", "shape", "form"])
def test_what_determines_the_packed_form_makes_a_file_of_its_own(tmp_path, change):
    calls, pack = counted()
    w = weight(0)
    WeightCache(tmp_path).packed(w, "a", pack(w))
    other = {"content": weight(1), "shape": w.reshape(2, -1), "form": w}[change]
    WeightCache(tmp_path).packed(other, "b" if change == "form" else "a", pack(other))
    assert len(calls) == 2
    assert len(list(tmp_path.iterdir())) == 2


def test_small_weights_are_not_stored(tmp_path):
    calls, pack = counted()
    w = weight(0)[:10]
    WeightCache(tmp_path).packed(w, "a", pack(w))
    assert calls
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("content", [b"", b"no array", b"\x93NUMPY\x01\x00v\x00{'descr'"])
def test_a_damaged_file_is_replaced(tmp_path, content):
    calls, pack = counted()
    w = weight(0)
    WeightCache(tmp_path).packed(w, "a", pack(w))
    (path,) = tmp_path.iterdir()
    path.write_bytes(content)
    np.testing.assert_array_equal(WeightCache(tmp_path).packed(w, "a", pack(w)), w[::-1])
    assert len(calls) == 2
    np.testing.assert_array_equal(np.load(path), w[::-1])


def test_the_weights_that_were_not_used_for_the_longest_time_are_removed(tmp_path, monkeypatch):
    calls, pack = counted()
    monkeypatch.setattr(machine, "MOST", 3 * SMALLEST)  # two files
    first, second, third = (weight(seed) for seed in range(3))
    for age, w in ((30, first), (20, second)):
        before = set(tmp_path.iterdir())
        WeightCache(tmp_path).packed(w, "a", pack(w))
        (path,) = set(tmp_path.iterdir()) - before
        os.utime(path, (1e9 - age, 1e9 - age))
    WeightCache(tmp_path).packed(first, "a", pack(first))
    WeightCache(tmp_path).packed(third, "a", pack(third))
    assert len(list(tmp_path.iterdir())) == 2
    assert len(calls) == 3
    WeightCache(tmp_path).packed(first, "a", pack(first))
    assert len(calls) == 3
    WeightCache(tmp_path).packed(second, "a", pack(second))
    assert len(calls) == 4


def test_a_folder_that_cannot_be_written_costs_the_packing_only(tmp_path):
    calls, pack = counted()
    w = weight(0)
    blocked = tmp_path / "file"
    blocked.write_text("not a folder")
    for _ in range(2):
        np.testing.assert_array_equal(WeightCache(blocked / "weights").packed(w, "a", pack(w)), w[::-1])
    assert len(calls) == 2
