"""Default calibration data: real images for models that take them, and calibration data from files."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator, Mapping
from pathlib import Path

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.errors import CompilerError
from mlhood.files.paths import did_you_mean
from mlhood.models import digits, photographs

DIGITS = (1, 32, 32)
PHOTOGRAPH_SIZE = 224
COUNT = 300


def samples(graph: Graph) -> dict[str, np.ndarray]:
    """Return real data for a graph that takes images: the course's digits, or its two photographs, cropped to size.

    Raises:
        CompilerError: The graph has other inputs.
    """
    return next(split(graph, all_samples(graph)))


def all_samples(graph: Graph) -> dict[str, np.ndarray]:
    """Return all the data of `samples`, also if the graph's batch is fixed to fewer.

    Raises:
        CompilerError: As for `samples`.
    """
    placeholders = list(graph.placeholders.values())
    if len(placeholders) == 1 and placeholders[0].type.rank == 4 and placeholders[0].type.element == "float32":
        images = _images(placeholders[0].type)
        if images is not None:
            return {placeholders[0].name: images}
    inputs = ", ".join(f"{value.name} {value.type.element}{list(value.type.shape)}" for value in placeholders)
    raise CompilerError(
        "no default calibration data for this model",
        where=f"graph {graph.name!r}",
        expected=f"one input of images, [N, 1, 32, 32], or [N, 3, H, W] with H and W up to {PHOTOGRAPH_SIZE}",
        got=inputs or "no inputs",
        todo="pass your own data: an .npz file with an array for each input, by name",
    )


def _images(type: TensorType) -> np.ndarray | None:
    image = type.shape[1:]
    if tuple(image) == DIGITS:
        images = digits().train_images[:COUNT]
    elif image[0] == 3 and all(isinstance(size, int) and 1 <= size <= PHOTOGRAPH_SIZE for size in image[1:]):
        images, (height, width) = photographs(), map(int, image[1:])
        top, left = (images.shape[2] - height) // 2, (images.shape[3] - width) // 2
        images = np.ascontiguousarray(images[:, :, top : top + height, left : left + width])
    else:
        return None
    return images


def split(graph: Graph, data: Mapping[str, np.ndarray]) -> Iterator[dict[str, np.ndarray]]:
    """Yield data in batches of the size to which the graph's first axes are fixed; as they are if none is.

    Args:
        graph: The graph that will read them.
        data: An array for each input by name. What remains after the last whole batch is left out.
    """
    arrays = {name: array for name, array in data.items() if isinstance(array, np.ndarray)}
    types = {name: value.type for name, value in graph.placeholders.items()}
    sizes = {type.shape[0] if type.shape else "" for type in types.values()}
    lengths = {array.shape[0] if array.ndim else 0 for array in arrays.values()}
    size, length = next(iter(sizes), ""), next(iter(lengths), 0)
    whole = len(arrays) < len(data) or len(sizes) != 1 or len(lengths) != 1
    if whole or not isinstance(size, int) or not 0 < size < length:
        yield dict(data)
        return
    for start in range(0, length - size + 1, size):
        yield {name: array[start : start + size] for name, array in arrays.items()}


def read_samples(path: str | Path) -> Mapping[str, np.ndarray]:
    """Return the arrays of an .npz file by name.

    Raises:
        CompilerError: The file cannot be read, is not an .npz file, or contains something other than numbers.
    """
    try:
        with np.load(path, allow_pickle=False) as archive:
            return {name: archive[name] for name in archive.files}
    except (OSError, ValueError, EOFError, zipfile.BadZipFile, AttributeError, TypeError) as error:
        raise CompilerError(
            "the file with calibration data cannot be read",
            where=str(path),
            expected="an .npz file with an array for each input, by name",
            got=error,
            todo=did_you_mean(path) or "write it with np.savez('calibration.npz', image=images)",
        ) from error
