"""Real handwritten digits: those that ship with scikit-learn, or MNIST if available.

Source of MNIST's IDX format: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File
formats": two zero bytes, the type (8 is unsigned byte), the number of axes, each axis as a big-endian 32-bit integer,
then the data.
"""

from __future__ import annotations

import gzip
import math
import os
import struct
import zlib
from functools import partial
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlhood.errors import ModelError

MNIST_VARIABLE = "MLHOOD_MNIST"

# Every sixth image of a class, in the data set's order, is held out: 1,797 images give about 1,500 + 297.
_HOLD_OUT_EVERY = 6
_UNSIGNED_BYTE = 8
_mnist_error = partial(
    ModelError, todo="download MNIST's four files again, or unset MLHOOD_MNIST to use scikit-learn's digits"
)


class Digits(NamedTuple):
    """Images of the digits 0 to 9 with their labels, split into a training set and a held-out test set."""

    train_images: np.ndarray
    """float32 [N, 1, 32, 32], mean 0 and standard deviation 1 over the training set."""
    train_labels: np.ndarray
    """int64 [N]."""
    test_images: np.ndarray
    """float32 [M, 1, 32, 32], normalised with the mean and standard deviation of the training set."""
    test_labels: np.ndarray
    """int64 [M]."""
    source: str
    """Description of the data's origin."""


def digits(mnist: str | Path | None = None) -> Digits:
    """Load the digits, bit-identical on every machine.

    Without `mnist` and without the environment variable `MLHOOD_MNIST`: the 1,797 digits of 8 x 8 pixels that
    ship with scikit-learn (E. Alpaydin, C. Kaynak, "Optical recognition of handwritten digits", UCI, 1998),
    enlarged to 24 x 24 by bilinear interpolation and padded by 4, with a fixed split of each class. No
    network is needed.

    Args:
        mnist: Folder with MNIST's four IDX files, plain or `.gz`; its 28 x 28 images are padded by 2. An
            empty string disables MNIST regardless of the environment variable.

    Raises:
        ModelError: The folder or a file in it is missing, truncated or not IDX.
    """
    folder = os.environ.get(MNIST_VARIABLE, "") if mnist is None else mnist
    if folder and str(folder):
        train_images, train_labels, test_images, test_labels = read_mnist(Path(folder))
        return _normalise(_pad(train_images, 2), train_labels, _pad(test_images, 2), test_labels, f"MNIST in {folder}")
    from sklearn.datasets import load_digits

    pixels, labels = (np.asarray(part) for part in load_digits(return_X_y=True))
    images = _enlarge(pixels.reshape(-1, 8, 8))
    held_out = _held_out(labels)
    return _normalise(
        images[~held_out],
        labels[~held_out],
        images[held_out],
        labels[held_out],
        "scikit-learn's digits (UCI), 8 x 8 enlarged to 24 x 24 in a border of 4",
    )


def perturbed(images: np.ndarray, rng: np.random.Generator, *, shift: int = 2, noise: float = 0.25) -> np.ndarray:
    """Return images as if written elsewhere on the paper and scanned badly: moved, with noise on every pixel.

    Args:
        images: float32 [N, 1, H, W].
        rng: The source of shifts and noise, other ones for each image.
        shift: Largest distance in pixels along each axis; the background fills what becomes free.
        noise: Standard deviation of the normal noise.

    Returns:
        New images, float32 [N, 1, H, W].
    """
    count, _, height, width = images.shape
    border = ((0, 0), (0, 0), (shift, shift), (shift, shift))
    padded = np.pad(images, border, constant_values=images.min())
    top, left = rng.integers(2 * shift + 1, size=(2, count, 1))
    rows, columns = top + np.arange(height), left + np.arange(width)
    moved = padded[np.arange(count)[:, None, None], 0, rows[:, :, None], columns[:, None, :]][:, None]
    return moved + np.float32(noise) * rng.standard_normal(images.shape, dtype=np.float32)


def _enlarge(images: np.ndarray) -> np.ndarray:
    """Interpolate [N, 8, 8] of 0..16 to int64 [N, 32, 32] of 0..576: 24 x 24 with a padding of 4.

    The padding follows LeCun (section II.B): strokes at the edge of a digit then reach the centre of a 5 x 5
    kernel. With pixel centres at half-integers, all weights are multiples of 1/6, so the result is an integer in
    units of 1/36 and exact on every machine.
    """
    centre = np.clip((np.arange(24) * 2 + 1) - 3, 0, 7 * 6)  # in sixths of a small pixel
    low = np.minimum(centre // 6, 6)
    weights = np.zeros((24, 8), np.int64)
    weights[np.arange(24), low] = 6 - (centre - 6 * low)
    weights[np.arange(24), low + 1] = centre - 6 * low
    return _pad(weights @ images.astype(np.int64) @ weights.T, 4)


def _pad(images: np.ndarray, width: int) -> np.ndarray:
    return np.pad(images, ((0, 0), (width, width), (width, width)))


def _held_out(labels: np.ndarray) -> np.ndarray:
    """Mark every sixth image of each class."""
    held_out = np.zeros(len(labels), bool)
    for label in range(10):
        (indices,) = np.nonzero(labels == label)
        held_out[indices[_HOLD_OUT_EVERY - 1 :: _HOLD_OUT_EVERY]] = True
    return held_out


def _normalise(
    train_images: np.ndarray, train_labels: np.ndarray, test_images: np.ndarray, test_labels: np.ndarray, source: str
) -> Digits:
    # Integer sums are exact, so the constants do not depend on NumPy's summation order.
    count = train_images.size
    total = int(train_images.sum(dtype=np.int64))
    squares = int(np.square(train_images, dtype=np.int64).sum(dtype=np.int64))
    mean = np.float32(total / count)
    deviation = np.float32(math.sqrt(max(count * squares - total * total, 1)) / count)

    def scaled(images: np.ndarray) -> np.ndarray:
        return ((images.astype(np.float32) - mean) / deviation)[:, None]

    return Digits(
        scaled(train_images), train_labels.astype(np.int64), scaled(test_images), test_labels.astype(np.int64), source
    )


def read_mnist(folder: Path) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """Read the four files of MNIST.

    Args:
        folder: Contains the files, plain or `.gz`, directly or in torchvision's `MNIST/raw`.

    Returns:
        Training images uint8 [N, 28, 28], training labels uint8 [N], test images and test labels.

    Raises:
        ModelError: The folder or a file is missing, truncated, not IDX, or inconsistent with the others.
    """
    if not folder.is_dir():
        raise _mnist_error("no such MNIST folder", where=folder, expected="a folder")
    return *_read_split(folder, "train"), *_read_split(folder, "t10k")


def _read_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    image_file, label_file = _find(folder, f"{split}-images-idx3-ubyte"), _find(folder, f"{split}-labels-idx1-ubyte")
    images, labels = read_idx(image_file), read_idx(label_file)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or not len(images):
        raise _mnist_error(
            "the images do not have MNIST's shape", where=image_file, expected="[N, 28, 28]", got=list(images.shape)
        )
    if labels.shape != images.shape[:1]:
        raise _mnist_error(
            "images and labels differ in number",
            where=label_file,
            expected=f"{len(images)} labels, one per image of {image_file.name}",
            got=list(labels.shape),
        )
    if labels.max() > 9:
        raise _mnist_error("a label is not a digit", where=label_file, expected="0 to 9", got=int(labels.max()))
    return images, labels


def _find(folder: Path, stem: str) -> Path:
    # Some distributions have a dot instead of the hyphen: train-images.idx3-ubyte.
    stems = (stem, stem.replace("-idx", ".idx"))
    for parent in (folder, folder / "raw", folder / "MNIST" / "raw"):
        for name in (name for s in stems for name in (s, s + ".gz")):
            if (parent / name).is_file():
                return parent / name
    raise _mnist_error(
        "a file of MNIST is missing",
        where=folder,
        expected=f"{stem} or {stem}.gz",
        got=", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "an empty folder",
    )


def read_idx(path: Path) -> np.ndarray:
    """Read one IDX file of unsigned bytes, plain or `.gz`, as uint8 of the shape in its header.

    Raises:
        ModelError: The file is missing, truncated, too long, or not IDX of unsigned bytes.
    """
    data = _read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _UNSIGNED_BYTE or not 1 <= data[3] <= 4:
        raise _mnist_error(
            "not an IDX file of unsigned bytes",
            where=path,
            expected="00 00 08 and the number of axes",
            got=data[:4].hex(" ") or "an empty file",
        )
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise _mnist_error("the file ends within its header", where=path, expected=f"{start} bytes", got=f"{len(data)}")
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise _mnist_error(
            "the file is truncated" if len(data) - start < math.prod(shape) else "the file is too long",
            where=path,
            expected=f"{math.prod(shape)} bytes of data for {list(shape)}",
            got=f"{len(data) - start}",
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:  # gzip raises any of these for a corrupt file
        raise _mnist_error("the file cannot be read", where=path, got=str(error) or type(error).__name__) from error
