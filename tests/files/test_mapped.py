"""Large arrays in a mapped file: the same numbers, read-only, and memory only while they are used."""

from __future__ import annotations

import mmap
import tempfile
from pathlib import Path

import numpy as np
import pytest

from mlhood.files.mapped import SMALLEST, map_arrays, release_pages

STATUS = Path("/proc/self/status")


def arrays():
    rng = np.random.default_rng(0)
    yield rng.standard_normal((300, 700)).astype(np.float32)
    yield np.arange(5)
    yield rng.integers(-128, 128, SMALLEST, np.int8)
    yield np.empty((0, 4), np.float32)
    yield rng.standard_normal((200, 3, 201)).transpose(2, 0, 1)


def is_mapped(array: np.ndarray) -> bool:
    base = array
    while isinstance(base, np.ndarray):
        base = base.base
    return isinstance(base, memoryview) and isinstance(base.obj, mmap.mmap)


def test_large_arrays_are_mapped_and_all_are_equal():
    mapped = map_arrays(arrays())
    assert [is_mapped(array) for array in mapped] == [True, False, True, False, True]
    for before, after in zip(arrays(), mapped, strict=True):
        assert (before.dtype, before.shape) == (after.dtype, after.shape)
        np.testing.assert_array_equal(before, after)
    assert not mapped[0].flags.writeable


def test_released_pages_are_read_again():
    mapped = map_arrays(arrays())
    for array in (*mapped, mapped[0][3:7], mapped[0][::-1]):
        release_pages(array)
    for before, after in zip(arrays(), mapped, strict=True):
        np.testing.assert_array_equal(before, after)


def test_what_can_be_written_is_not_released(tmp_path):
    path = tmp_path / "array"
    np.zeros(SMALLEST).tofile(path)
    with path.open("r+b") as file, mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_COPY) as mapping:
        array = np.frombuffer(mapping)
        array[:] = 7  # private pages, which the system could not read again
        release_pages(array)
        assert (array == 7).all()
        del array


@pytest.mark.skipif(not STATUS.is_file(), reason="the system does not tell what is resident")
def test_released_pages_take_no_memory():
    def resident():
        fields = dict(line.split(":", 1) for line in STATUS.read_text().splitlines())
        return 1024 * int(fields["RssFile"].split()[0])

    (array,) = map_arrays([np.ones(2**24, np.float32)])
    assert array.sum() == 2**24
    used = resident()
    release_pages(array)
    assert resident() < used - array.nbytes // 2


def test_without_room_on_the_disk_arrays_stay_in_memory(monkeypatch):
    class Full:
        def write(self, data):
            raise OSError(28, "No space left on device")

        def seek(self, offset, whence):
            return 0

        def __enter__(self):
            return self

        def __exit__(self, *error):
            return None

    def no_folder():
        raise FileNotFoundError(2, "No usable temporary directory found")

    for make in (Full, no_folder):
        monkeypatch.setattr(tempfile, "TemporaryFile", make)
        mapped = map_arrays(arrays())
        assert not any(is_mapped(array) for array in mapped)
        for before, after in zip(arrays(), mapped, strict=True):
            np.testing.assert_array_equal(before, after)
