"""Shapes and dtypes of everything in a graph, by ONNX's own inference."""

from __future__ import annotations

import math
from dataclasses import dataclass

import onnx
from onnx import TensorProto, helper
from onnx.inliner import inline_local_functions

from mlhood.errors import ExchangeError

_NOT_PARAMETERS = {TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING}


@dataclass(frozen=True)
class Type:
    """What is known of a tensor: each axis as a number, a name from the file, or "?"."""

    shape: tuple[int | str, ...] | None
    dtype: int

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Axes as numbers, 1 for those that are open."""
        if self.shape is None:
            return None
        return tuple(axis if isinstance(axis, int) else 1 for axis in self.shape)

    @property
    def count(self) -> int | None:
        """Numbers in the tensor."""
        return None if self.sizes is None else math.prod(self.sizes)

    @property
    def bytes(self) -> int | None:
        """Memory of the tensor; None for strings, and where the shape is not known."""
        if self.count is None or self.dtype in (TensorProto.UNDEFINED, TensorProto.STRING):
            return None
        return math.ceil(self.count * _bits(self.dtype) / 8)


_UNKNOWN = Type(None, TensorProto.UNDEFINED)


class Shapes:
    """The nodes of a model, and the type of each tensor by name.

    Args:
        model: A valid model; it is left as it is.
        dims: Numbers for the axes that the file names.

    Raises:
        ExchangeError: `dims` names an axis that the model does not have, or is not a positive number.
    """

    def __init__(self, model: onnx.ModelProto, dims: dict[str, int]) -> None:
        if model.functions:
            model = inline_local_functions(model)
        named = _named_axes(model.graph)
        _check_dims(dims, named)
        model = _with_numbers(model, dims)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self.nodes = list(model.graph.node)
        self.constants = _constants(model.graph)
        self.parameters = {n: type_ for n, type_ in self.constants.items() if type_.dtype not in _NOT_PARAMETERS}
        self._types = {
            value.name: _type(value, named) for value in (*inferred.value_info, *inferred.input, *inferred.output)
        }

    def __getitem__(self, name: str) -> Type:
        return self.constants.get(name) or self._types.get(name, _UNKNOWN)


def _constants(graph: onnx.GraphProto) -> dict[str, Type]:
    found = {tensor.name: Type(tuple(tensor.dims), tensor.data_type) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.name == "value":
                found[node.output[0]] = Type(tuple(attribute.t.dims), attribute.t.data_type)
            elif attribute.name in ("value_int", "value_ints"):
                found[node.output[0]] = Type((), TensorProto.INT64)
    return found


def _named_axes(graph: onnx.GraphProto) -> set[str]:
    values = (*graph.input, *graph.output, *graph.value_info)
    return {axis.dim_param for value in values for axis in value.type.tensor_type.shape.dim if axis.dim_param}


def _check_dims(dims: dict[str, int], named: set[str]) -> None:
    for name, size in dims.items():
        if name not in named:
            raise ExchangeError(
                "the model has no axis of this name",
                expected=", ".join(sorted(named)) or "none: all its axes are numbers",
                got=name,
            )
        if not isinstance(size, int) or size < 1:
            raise ExchangeError("an axis must be a positive number", where=f"axis {name!r}", got=size)


def _with_numbers(model: onnx.ModelProto, dims: dict[str, int]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in dims:
                axis.dim_value = dims[axis.dim_param]
    return copy


def _type(value: onnx.ValueInfoProto, named: set[str]) -> Type:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return Type(None, tensor.elem_type)
    return Type(tuple(_axis(axis, named) for axis in tensor.shape.dim), tensor.elem_type)


def _axis(axis: onnx.TensorShapeProto.Dimension, named: set[str]) -> int | str:
    if axis.HasField("dim_value"):
        return axis.dim_value
    # Inference makes up names of its own for what it does not know.
    return axis.dim_param if axis.dim_param in named else "?"


def _bits(dtype: int) -> int:
    name = TensorProto.DataType.Name(dtype)
    if name.endswith("INT4") or name.startswith("FLOAT4"):
        return 4
    return helper.tensor_dtype_to_np_dtype(dtype).itemsize * 8
