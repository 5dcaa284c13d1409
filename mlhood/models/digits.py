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
from pathlib import Path
from typing import NamedTuple

import numpy as np

from mlhood.errors import ModelError

MNIST_VARIABLE = "MLHOOD_MNIST"

# Every sixth image of a class, in the data set's order, is held out: 1,797 images give about 1,500 + 297.
_HOLD_OUT_EVERY = 6


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
        ModelError: A file of the folder is missing or damaged.
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


def read_mnist(folder: Path) -> list[np.ndarray]:
    """Read the four files of MNIST, plain or `.gz`, from a folder or from torchvision's `MNIST/raw` in it.

    Returns:
        Training images uint8 [N, 28, 28], training labels uint8 [N], test images and test labels.

    Raises:
        ModelError: A file is missing or damaged.
    """
    kinds = ("images-idx3-ubyte", "labels-idx1-ubyte")
    return [_read_idx(folder, f"{split}-{kind}") for split in ("train", "t10k") for kind in kinds]


def _read_idx(folder: Path, name: str) -> np.ndarray:
    names = [part / f"{name}{suffix}" for part in (folder, folder / "MNIST" / "raw") for suffix in ("", ".gz")]
    path = next((path for path in names if path.is_file()), None)
    todo = "download MNIST's four files again, or unset MLHOOD_MNIST to use scikit-learn's digits"
    if path is None:
        raise ModelError("a file of MNIST is missing", where=folder, expected=f"{name} or {name}.gz", todo=todo)
    try:
        data = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
        start = 4 + 4 * data[3]
        return np.frombuffer(data, np.uint8, offset=start).reshape(struct.unpack(f">{data[3]}I", data[4:start]))
    except (OSError, EOFError, zlib.error, struct.error, IndexError, ValueError) as error:
        raise ModelError("a file of MNIST is damaged", where=path, got=error, todo=todo) from error
