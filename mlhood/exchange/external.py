"""Weights that a model keeps in files beside it: found, held against their shapes, and read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from pathlib import Path

import onnx
from onnx import TensorProto, helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from mlhood.errors import ExchangeError

# What a message of protobuf can hold, and so a model with its weights.
LARGEST_MODEL = 2**31 - 1
_COPY_TOO = "copy that file too, or export to one file (mlhood.exchange.export does)"
_NUMBERS = ("offset", "length")


def fetch_external(proto: onnx.ModelProto, where: str, folder: Path | None) -> None:
    """Read the external data of all tensors into the model.

    Files are only read from the model's folder and those in it, and only as many bytes as the tensor's shape needs.

    Args:
        proto: The model; its external tensors hold their data afterwards.
        where: How errors name the model.
        folder: The model's folder; None where it has none.

    Raises:
        ExchangeError: A file is missing, outside of the folder or too short, or all are larger than a model can be.
    """
    total = 0
    for tensor in tensors(proto):
        if not uses_external_data(tensor):
            continue
        named = f"{where}, tensor {tensor.name!r}"
        total += _check_file(tensor, named, folder)
        if total > LARGEST_MODEL:
            raise too_large(where, total)
        _load(tensor, named, str(folder))


def too_large(where: str, size: int) -> ExchangeError:
    """Return the error for a model that no tool reads whole."""
    return ExchangeError(
        "the model is too large",
        where=where,
        expected=f"{LARGEST_MODEL:,} bytes at most, weights included",
        got=f"at least {size:,} bytes",
        todo="use a smaller model, or one with weights of fewer bits",
    )


def tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Give all tensors of a model: initialisers and attributes, those of subgraphs and functions among them."""
    graphs: list[onnx.GraphProto] = [proto.graph]
    nodes = [node for function in proto.functions for node in function.node]
    while graphs or nodes:
        if not nodes:
            graph = graphs.pop()
            nodes = list(graph.node)
            yield from graph.initializer
            for sparse in graph.sparse_initializer:
                yield from (sparse.values, sparse.indices)
            continue
        for attribute in nodes.pop().attribute:
            graphs += [attribute.g] * attribute.HasField("g") + list(attribute.graphs)
            yield from [attribute.t] * attribute.HasField("t") + list(attribute.tensors)
            for sparse in [attribute.sparse_tensor] * attribute.HasField("sparse_tensor") + [*attribute.sparse_tensors]:
                yield from (sparse.values, sparse.indices)


def _check_file(tensor: TensorProto, where: str, folder: Path | None) -> int:
    """Return how many bytes the tensor takes, after checking that its file has them."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    path = _inside(folder, location)
    if path is None:
        raise ExchangeError(
            "the model keeps weights in another file, which is missing",
            where=where,
            expected=f"{location!r} beside the model" if folder else "a path, so that the file can be found",
            got="a place outside of the model's folder" if folder and _leaves(folder, location) else None,
            todo=_COPY_TOO,
        )
    offset, length = (_number(entries, key, where) for key in _NUMBERS)
    size, needed = path.stat().st_size, _bytes_of(tensor, where)
    start = offset or 0
    given = size - start if length is None else length
    if start + given > size or given < 0 or (needed is not None and given != needed):
        raise ExchangeError(
            "the model's external data do not fit the tensor",
            where=where,
            expected="as many bytes as its shape needs" if needed is None else f"{needed:,} bytes from byte {start:,}",
            got=f"{given:,} bytes of {location!r}, which is {size:,} bytes long",
            todo=_COPY_TOO,
        )
    return given


def _leaves(folder: Path, location: str) -> bool:
    return Path(location).is_absolute() or ".." in Path(location).parts


def _inside(folder: Path | None, location: str) -> Path | None:
    """Return the file where it is a regular one in the folder, reached by no link that leads out of it."""
    if folder is None or not location or "\0" in location or _leaves(folder, location):
        return None
    try:
        path, home = (folder / location).resolve(), folder.resolve()
        return path if path.is_file() and path.is_relative_to(home) else None
    except (OSError, RuntimeError, ValueError):  # a name too long, or links in a circle
        return None


def _number(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    raise ExchangeError(
        "the model's external data are described wrongly",
        where=where,
        expected=f"{key}: a number of bytes",
        got=repr(text[:40]),
        todo=_COPY_TOO,
    )


def _bytes_of(tensor: TensorProto, where: str) -> int | None:
    """Return how many bytes the shape needs; None for elements of less than a byte."""
    if any(size < 0 for size in tensor.dims):
        raise ExchangeError("a tensor has a negative axis", where=where, got=list(tensor.dims[:64]))
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        return None
    packed = TensorProto.DataType.Name(tensor.data_type).endswith("4") and dtype.itemsize == 1
    return None if packed or dtype.kind == "O" else math.prod(tensor.dims) * dtype.itemsize


def _load(tensor: TensorProto, where: str, folder: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # entries of the file that onnx does not know
            load_external_data_for_tensor(tensor, folder)
    except Exception as error:  # what onnx raises, whose reader trusts fewer files than ours
        raise ExchangeError(
            "the model's external data cannot be read",
            where=where,
            got=" ".join(str(error).split())[:300],
            todo=_COPY_TOO,
        ) from error
