"""Read MNIST's files in IDX format.

Source: Y. LeCun, C. Cortes, C. Burges, "The MNIST database of handwritten digits", section "File formats":
two zero bytes, the type (8 is unsigned byte), the number of axes, each axis as a big-endian 32-bit integer,
then the data.
"""

from __future__ import annotations

import gzip
import math
import struct
import zlib
from pathlib import Path

import numpy as np

from mlhood.errors import ModelError

_UNSIGNED_BYTE = 8
_TODO = "download MNIST's four files again, or unset MLHOOD_MNIST to use scikit-learn's digits"


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
        raise ModelError("no such MNIST folder", where=folder, expected="a folder", todo=_TODO)
    return *_read_split(folder, "train"), *_read_split(folder, "t10k")


def _read_split(folder: Path, split: str) -> tuple[np.ndarray, np.ndarray]:
    image_file, label_file = _find(folder, f"{split}-images-idx3-ubyte"), _find(folder, f"{split}-labels-idx1-ubyte")
    images, labels = read_idx(image_file), read_idx(label_file)
    if images.ndim != 3 or images.shape[1:] != (28, 28) or not len(images):
        raise ModelError(
            "the images do not have MNIST's shape",
            where=image_file,
            expected="[N, 28, 28]",
            got=list(images.shape),
            todo=_TODO,
        )
    if labels.shape != images.shape[:1]:
        raise ModelError(
            "images and labels differ in number",
            where=label_file,
            expected=f"{len(images)} labels, one per image of {image_file.name}",
            got=list(labels.shape),
            todo=_TODO,
        )
    if labels.max() > 9:
        raise ModelError(
            "a label is not a digit", where=label_file, expected="0 to 9", got=int(labels.max()), todo=_TODO
        )
    return images, labels


def _find(folder: Path, stem: str) -> Path:
    # Some distributions have a dot instead of the hyphen: train-images.idx3-ubyte.
    stems = (stem, stem.replace("-idx", ".idx"))
    for parent in (folder, folder / "raw", folder / "MNIST" / "raw"):
        for name in (name for s in stems for name in (s, s + ".gz")):
            if (parent / name).is_file():
                return parent / name
    raise ModelError(
        "a file of MNIST is missing",
        where=folder,
        expected=f"{stem} or {stem}.gz",
        got=", ".join(sorted(entry.name for entry in folder.iterdir())[:8]) or "an empty folder",
        todo=_TODO,
    )


def read_idx(path: Path) -> np.ndarray:
    """Read one IDX file of unsigned bytes, plain or `.gz`, as uint8 of the shape in its header.

    Raises:
        ModelError: The file is missing, truncated, too long, or not IDX of unsigned bytes.
    """
    data = _read_bytes(path)
    if len(data) < 4 or data[:2] != b"\0\0" or data[2] != _UNSIGNED_BYTE or not 1 <= data[3] <= 4:
        raise ModelError(
            "not an IDX file of unsigned bytes",
            where=path,
            expected="00 00 08 and the number of axes",
            got=data[:4].hex(" ") or "an empty file",
            todo=_TODO,
        )
    start = 4 + 4 * data[3]
    if len(data) < start:
        raise ModelError(
            "the file ends within its header",
            where=path,
            expected=f"{start} bytes",
            got=f"{len(data)}",
            todo=_TODO,
        )
    shape = struct.unpack(f">{data[3]}I", data[4:start])
    if len(data) - start != math.prod(shape):
        raise ModelError(
            "the file is truncated" if len(data) - start < math.prod(shape) else "the file is too long",
            where=path,
            expected=f"{math.prod(shape)} bytes of data for {list(shape)}",
            got=f"{len(data) - start}",
            todo=_TODO,
        )
    return np.frombuffer(data, np.uint8, offset=start).reshape(shape)


def _read_bytes(path: Path) -> bytes:
    try:
        data = path.read_bytes()
        return gzip.decompress(data) if path.suffix == ".gz" else data
    except (OSError, EOFError, zlib.error) as error:  # gzip raises any of these for a corrupt file
        raise ModelError(
            "the file cannot be read", where=path, got=str(error) or type(error).__name__, todo=_TODO
        ) from error
