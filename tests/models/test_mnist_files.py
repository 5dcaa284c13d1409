"""Reading MNIST's files, valid and corrupt."""

import gzip
import struct

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from mlhood.errors import ModelError
from mlhood.models import digits
from mlhood.models.digits import read_idx

FILES = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)


def idx(array):
    return struct.pack(f">BBBB{array.ndim}I", 0, 0, 8, array.ndim, *array.shape) + array.tobytes()


def write(folder, *, zipped=False, dotted=False):
    random = np.random.default_rng(0)
    folder.mkdir(parents=True, exist_ok=True)
    arrays = {}
    for name in FILES:
        count = 12 if name.startswith("train") else 5
        images = random.integers(0, 256, (count, 28, 28), np.uint8)
        arrays[name] = images if "images" in name else np.arange(count, dtype=np.uint8) % 10
        data = idx(arrays[name])
        file = folder / (name.replace("-idx", ".idx") if dotted else name)
        if zipped:
            file.with_name(file.name + ".gz").write_bytes(gzip.compress(data))
        else:
            file.write_bytes(data)
    return arrays


@pytest.mark.parametrize("where", [".", "raw", "MNIST/raw"])
@pytest.mark.parametrize("form", [{}, {"zipped": True}, {"dotted": True}])
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


def corrupt(change):
    data = idx(np.zeros((12, 28, 28), np.uint8))
    return change(data)


@pytest.mark.parametrize(
    ("data", "message"),
    [
        (corrupt(lambda data: data[:-1]), "truncated"),
        (corrupt(lambda data: data + b"\0"), "too long"),
        (corrupt(lambda data: data[:9]), "within its header"),
        (corrupt(lambda data: b"\x89PNG" + data), "not an IDX file"),
        (b"", "not an IDX file"),
        (idx(np.zeros((12, 28, 27), np.uint8)), "MNIST's shape"),
        (idx(np.zeros((11, 28, 28), np.uint8)), "differ in number"),
    ],
)
def test_an_invalid_image_file_raises(tmp_path, data, message):
    write(tmp_path)
    (tmp_path / FILES[0]).write_bytes(data)
    with pytest.raises(ModelError, match=message) as caught:
        digits(tmp_path)
    assert {"where", "got"} <= caught.value.parts.keys()


def test_a_label_above_nine_raises(tmp_path):
    write(tmp_path)
    (tmp_path / FILES[1]).write_bytes(idx(np.full(12, 10, np.uint8)))
    with pytest.raises(ModelError, match="not a digit"):
        digits(tmp_path)


@pytest.mark.parametrize("data", [b"not gzip", gzip.compress(b"x" * 5000, mtime=0)[:40], b""])
def test_a_corrupt_archive_raises(tmp_path, data):
    write(tmp_path)
    (tmp_path / FILES[0]).unlink()
    (tmp_path / (FILES[0] + ".gz")).write_bytes(data)
    with pytest.raises(ModelError):
        digits(tmp_path)


@given(st.binary(max_size=64) | st.binary(max_size=40).map(lambda tail: b"\0\0\x08" + tail))
def test_any_bytes_give_an_array_or_an_error(tmp_path_factory, data):
    path = tmp_path_factory.mktemp("idx") / "file"
    path.write_bytes(data)
    try:
        array = read_idx(path)
    except ModelError:
        return
    assert idx(array) == data
