"""Weights: those that a model stores in separate files are located, checked against their shapes, and read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import onnx
from google.protobuf.message import Message
from onnx import TensorProto, helper
from onnx.external_data_helper import load_external_data_for_tensor, uses_external_data

from mlhood.errors import ExchangeError

# Protobuf's limit on the size of a message.
MAX_MODEL_BYTES = 2**31 - 1
_LARGE = 2**16  # bytes of a tensor
_external_error = partial(ExchangeError, todo="copy that file too, or export to one file (mlhood.exchange.export does)")


def fetch_external(proto: onnx.ModelProto, where: str, folder: Path | None) -> None:
    """Read the external data of all tensors into the model.

    Only files in the model's folder and its subfolders are read, and only as many bytes as the tensor's shape needs.

    Args:
        proto: The model, modified in place.
        where: The model's name in error messages.
        folder: The model's folder, or None if it has none.

    Raises:
        ExchangeError: A file is missing, outside of the folder or too short, or the total exceeds `MAX_MODEL_BYTES`.
    """
    total = 0
    for tensor in tensors(proto):
        if not uses_external_data(tensor):
            continue
        location = f"{where}, tensor {tensor.name!r}"
        total += _check_file(tensor, location, folder)
        if total > MAX_MODEL_BYTES:
            raise too_large(where, total)
        _load(tensor, location, str(folder))


def too_large(where: str, size: int) -> ExchangeError:
    """Return the error for a model that exceeds `MAX_MODEL_BYTES`."""
    return ExchangeError(
        "the model is too large",
        where=where,
        expected=f"{MAX_MODEL_BYTES:,} bytes at most, weights included",
        got=f"at least {size:,} bytes",
        todo="use a smaller model, or one with weights of fewer bits",
    )


def tensors(proto: onnx.ModelProto) -> Iterator[TensorProto]:
    """Yield all tensors of a model: initializers and attributes, including those in subgraphs and functions."""
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
    """Check that the tensor's file has the bytes that its shape needs, and return their number."""
    entries = {entry.key: entry.value for entry in tensor.external_data}
    location = entries.get("location", "")
    path = _resolve(folder, location)
    if path is None:
        raise _external_error(
            "the model stores weights in another file, which is missing",
            where=where,
            expected=f"{location!r} next to the model" if folder else "a path, from which the file can be located",
            got="a path outside of the model's folder" if folder and _escapes(location) else None,
        )
    start, length = _parse_size(entries, "offset", where) or 0, _parse_size(entries, "length", where)
    size, needed = path.stat().st_size, _bytes_needed(tensor, where)
    available = size - start if length is None else length
    if start + available > size or available < 0 or (needed is not None and available != needed):
        raise _external_error(
            "the model's external data do not match the tensor's shape",
            where=where,
            expected="as many bytes as its shape needs" if needed is None else f"{needed:,} bytes from byte {start:,}",
            got=f"{available:,} bytes of {location!r}, which is {size:,} bytes long",
        )
    return available


def _escapes(location: str) -> bool:
    return Path(location).is_absolute() or ".." in Path(location).parts


def _resolve(folder: Path | None, location: str) -> Path | None:
    """Return the path of a regular file inside the folder after following symbolic links, else None."""
    if folder is None or not location or "\0" in location or _escapes(location):
        return None
    try:
        path, root = (folder / location).resolve(), folder.resolve()
        return path if path.is_file() and path.is_relative_to(root) else None
    except (OSError, RuntimeError, ValueError):  # the name is too long, or a loop of symbolic links
        return None


def _parse_size(entries: dict[str, str], key: str, where: str) -> int | None:
    text = entries.get(key)
    if text is None:
        return None
    if text.isascii() and text.isdecimal() and len(text) < 20:
        return int(text)
    raise _external_error(
        "the model's external data have an invalid description",
        where=where,
        expected=f"{key}: a decimal number of bytes",
        got=repr(text[:40]),
    )


def _bytes_needed(tensor: TensorProto, where: str) -> int | None:
    """Return the number of bytes that the shape needs; None for elements smaller than a byte."""
    if any(size < 0 for size in tensor.dims):
        raise ExchangeError("a tensor has a negative dimension", where=where, got=list(tensor.dims[:64]))
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        return None
    packed = TensorProto.DataType.Name(tensor.data_type).endswith("4") and dtype.itemsize == 1
    return None if packed or dtype.kind == "O" else math.prod(tensor.dims) * dtype.itemsize


def _load(tensor: TensorProto, where: str, folder: str) -> None:
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # unknown keys in the description
            load_external_data_for_tensor(tensor, folder)
    except Exception as error:  # onnx raises various types, and rejects some files that pass our checks
        raise _external_error(
            "the model's external data cannot be read", where=where, got=" ".join(str(error).split())[:300]
        ) from error


def without_weights(proto: onnx.ModelProto) -> onnx.ModelProto:
    """Return a copy in which large initializers are empty: the checker serialises what it is given.

    Only those are emptied in which it could find no fault.
    """
    light = onnx.ModelProto()
    graph = light.graph
    for source, target in ((proto, light), (proto.graph, graph)):
        for field, value in source.ListFields():
            if field.name not in ("graph", "initializer"):
                _copy_field(target, field.name, value)
    for tensor in proto.graph.initializer:
        if tensor.ByteSize() < _LARGE or not _has_raw_data(tensor):
            graph.initializer.append(tensor)
        else:
            graph.initializer.add(name=tensor.name, data_type=tensor.data_type, dims=[0])
    return light


def _copy_field(target: Message, name: str, value: Any) -> None:
    field = getattr(target, name)
    if isinstance(value, Message):
        field.CopyFrom(value)
    elif isinstance(value, (str, bytes, int, float)):
        setattr(target, name, value)
    else:
        field.MergeFrom(value)


def _has_raw_data(tensor: TensorProto) -> bool:
    """Return whether a tensor's elements are in the model, as bytes that match its shape, and nowhere else."""
    kinds = {field.name for field, _ in tensor.ListFields()}
    if not kinds <= {"name", "dims", "data_type", "raw_data", "doc_string"} or any(size < 0 for size in tensor.dims):
        return False
    return _bytes_needed(tensor, tensor.name) == len(tensor.raw_data)
