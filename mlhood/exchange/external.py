"""Weights: those that a model stores in separate files are read."""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterator
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


def fetch_external(proto: onnx.ModelProto, where: str, folder: Path | None) -> None:
    """Read the external data of all tensors into the model; onnx reads regular files in the folder only.

    Args:
        proto: The model, modified in place.
        where: The model's name in error messages.
        folder: The model's folder, or None if it has none.

    Raises:
        ExchangeError: A file cannot be read, or the total exceeds `MAX_MODEL_BYTES`.
    """
    total = 0
    for tensor in tensors(proto):
        if not uses_external_data(tensor):
            continue
        files = ", ".join(entry.value for entry in tensor.external_data if entry.key == "location")
        try:
            if folder is None:
                raise ValueError("the model was not given as a path")
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")  # unknown keys in the description
                load_external_data_for_tensor(tensor, str(folder))
        except Exception as error:  # onnx raises various types
            raise ExchangeError(
                "the model stores weights in another file, which cannot be read",
                where=f"{where}, tensor {tensor.name!r}",
                expected=f"{files!r} next to the model",
                got=" ".join(str(error).split())[:300],
                todo="copy that file too, or export to one file (mlhood.exchange.export does)",
            ) from error
        total += len(tensor.raw_data)
        if total > MAX_MODEL_BYTES:
            raise too_large(where, total)


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
    try:
        dtype = helper.tensor_dtype_to_np_dtype(tensor.data_type)
    except KeyError:
        return False
    return dtype.kind != "O" and len(tensor.raw_data) == math.prod(tensor.dims) * dtype.itemsize
