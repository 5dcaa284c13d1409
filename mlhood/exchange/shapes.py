"""Shapes and dtypes of all tensors in a graph, by ONNX's own inference."""

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
    """A tensor's shape (each axis a number, a name from the file, or "?"; None if unknown) and element type."""

    shape: tuple[int | str, ...] | None
    dtype: int

    @property
    def sizes(self) -> tuple[int, ...] | None:
        """Axes as numbers, 1 for dynamic ones."""
        if self.shape is None:
            return None
        return tuple(axis if isinstance(axis, int) else 1 for axis in self.shape)

    @property
    def count(self) -> int | None:
        """Number of elements."""
        return None if self.sizes is None else math.prod(self.sizes)

    @property
    def bytes(self) -> int | None:
        """Memory of the tensor; None for strings, and if the shape is unknown."""
        if self.count is None or self.dtype in (TensorProto.UNDEFINED, TensorProto.STRING):
            return None
        return math.ceil(self.count * _bits(self.dtype) / 8)


_UNKNOWN = Type(None, TensorProto.UNDEFINED)


class Shapes:
    """The nodes of a model, and the type of each tensor by name.

    Args:
        model: A valid model; not modified.
        dims: Sizes for the axes that the file names.

    Raises:
        ExchangeError: `dims` names an axis that the model does not have, or a size is not a positive integer.
    """

    def __init__(self, model: onnx.ModelProto, dims: dict[str, int]) -> None:
        if model.functions:
            model = inline_local_functions(model)
        axis_names = _axis_names(model.graph)
        _check_dims(dims, axis_names)
        model = _with_sizes(model, dims)
        inferred = onnx.shape_inference.infer_shapes(model, data_prop=True).graph
        self.nodes = list(model.graph.node)
        self.constants = _constants(model.graph)
        self.parameters = {k: type_ for k, type_ in self.constants.items() if type_.dtype not in _NOT_PARAMETERS}
        self._types = {
            value.name: _type(value, axis_names) for value in (*inferred.value_info, *inferred.input, *inferred.output)
        }

    def __getitem__(self, name: str) -> Type:
        return self.constants.get(name) or self._types.get(name, _UNKNOWN)


def _constants(graph: onnx.GraphProto) -> dict[str, Type]:
    constants = {tensor.name: Type(tuple(tensor.dims), tensor.data_type) for tensor in graph.initializer}
    for node in graph.node:
        if node.op_type != "Constant":
            continue
        for attribute in node.attribute:
            if attribute.name == "value":
                constants[node.output[0]] = Type(tuple(attribute.t.dims), attribute.t.data_type)
            elif attribute.name in ("value_int", "value_ints"):
                constants[node.output[0]] = Type((), TensorProto.INT64)
    return constants


def _axis_names(graph: onnx.GraphProto) -> set[str]:
    values = (*graph.input, *graph.output, *graph.value_info)
    return {axis.dim_param for value in values for axis in value.type.tensor_type.shape.dim if axis.dim_param}


def _check_dims(dims: dict[str, int], axis_names: set[str]) -> None:
    for name, size in dims.items():
        if name not in axis_names:
            raise ExchangeError(
                "the model has no axis of this name",
                expected=", ".join(sorted(axis_names)) or "none: all axes have fixed sizes",
                got=name,
            )
        if not isinstance(size, int) or size < 1:
            raise ExchangeError("the size of an axis must be a positive integer", where=f"axis {name!r}", got=size)


def _with_sizes(model: onnx.ModelProto, dims: dict[str, int]) -> onnx.ModelProto:
    copy = onnx.ModelProto()
    copy.CopyFrom(model)
    for value in (*copy.graph.input, *copy.graph.output, *copy.graph.value_info):
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_param in dims:
                axis.dim_value = dims[axis.dim_param]
    return copy


def _type(value: onnx.ValueInfoProto, axis_names: set[str]) -> Type:
    tensor = value.type.tensor_type
    if not tensor.HasField("shape"):
        return Type(None, tensor.elem_type)
    return Type(tuple(_axis(axis, axis_names) for axis in tensor.shape.dim), tensor.elem_type)


def _axis(axis: onnx.TensorShapeProto.Dimension, axis_names: set[str]) -> int | str:
    if axis.HasField("dim_value"):
        return axis.dim_value
    # Shape inference generates names for unknown axes.
    return axis.dim_param if axis.dim_param in axis_names else "?"


def _bits(dtype: int) -> int:
    name = TensorProto.DataType.Name(dtype)
    if name.endswith("INT4") or name.startswith("FLOAT4"):
        return 4
    return helper.tensor_dtype_to_np_dtype(dtype).itemsize * 8
