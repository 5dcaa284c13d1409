"""Reading MNIST's files, valid and damaged."""

import gzip
import struct

import numpy as np
import pytest

from mlhood.errors import ModelError
from mlhood.models import digits

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder, *, zipped=False):
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for name in FILES:
        count = 12 if name.startswith("train") else 5
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[name] = images if "images" in name else np.arange(count, dtype=np.uint8) % 10
        data = idx(arrays[name])
        file = folder / name
        if zipped:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(data))
        else:
            file.write_bytes(data)
    return arrays


@pytest.mark.parametrize("where", [".", "MNIST/raw"])
@pytest.mark.parametrize("form", [{}, {"zipped": True}])
def test_all_layouts_of_a_folder_are_read(tmp_path, where, form):
    arrays = write(tmp_path / where, **form)
    data = digits(tmp_path)
    assert data.train_images.shape == (12, 1, 32, 32)
    assert data.test_images.shape == (5, 1, 32, 32)
    assert data.train_labels.dtype == np.int64
    assert data.test_labels.tolist() == [0, 1, 2, 3, 4]
    pixels = data.train_images[:, 0, 2:-2, 2:-2]
    raw = arrays[FILES[0]].astype(np.float64)
    padded = np.pad(raw, ((0, 0), (2, 2), (2, 2)))
    np.testing.assert_allclose(pixels, (raw - padded.mean()) / padded.std(), atol=1e-5)
    assert "MNIST" in data.source


def test_the_environment_variable_sets_the_folder(tmp_path, monkeypatch):
    write(tmp_path)
    monkeypatch.setenv("MLHOOD_MNIST", str(tmp_path))
    assert len(digits().train_images) == 12


@pytest.mark.parametrize("name", FILES)
def test_each_missing_file_is_named(tmp_path, name):
    write(tmp_path)
    (tmp_path / name).unlink()
    with pytest.raises(ModelError, match="missing") as caught:
        digits(tmp_path)
    assert name in caught.value.parts["expected"]


@pytest.mark.parametrize("damage", [lambda data: data[:-1], lambda data: data[:9], lambda data: b""])
@pytest.mark.parametrize("suffix", ["", ".gz"])
def test_a_damaged_file_is_named(tmp_path, damage, suffix):
    write(tmp_path, zipped=bool(suffix))
    path = tmp_path / (FILES[0] + suffix)
    path.write_bytes(damage(path.read_bytes()))
    with pytest.raises(ModelError, match="damaged") as caught:
        digits(tmp_path)
    assert caught.value.parts["where"] == str(path)
