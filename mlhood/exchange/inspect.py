"""Tables of a graph: operators, shapes by ONNX's own inference, parameters, multiply-accumulates and bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import onnx
from onnx import TensorProto, helper

from mlhood.errors import ExchangeError
from mlhood.exchange.functions import inline_functions
from mlhood.exchange.load import load

if TYPE_CHECKING:
    import pandas as pd

_NOT_PARAMETERS = {TensorProto.INT64, TensorProto.BOOL, TensorProto.STRING}
_Model = str | Path | bytes | onnx.ModelProto


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
            model = inline_functions(model)
        values = (*model.graph.input, *model.graph.output, *model.graph.value_info)
        axes = [axis for value in values for axis in value.type.tensor_type.shape.dim]
        axis_names = {axis.dim_param for axis in axes if axis.dim_param}
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


def operator_counts(model: _Model) -> pd.Series:
    """Count the nodes of each operator, most frequent first.

    Args:
        model: What `load` takes.

    Raises:
        ExchangeError: The model cannot be read.
    """
    import pandas as pd

    counts = Counter(node.op_type for node in load(model).graph.node)
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return pd.Series(ordered, name="count", dtype="int64").rename_axis("operator")


def node_table(model: _Model, /, **dims: int) -> pd.DataFrame:
    """Describe each node of the graph in one row, in the graph's order.

    Columns:
        - `name`, `op`: the node's name (its output's where it has none) and its operator.
        - `inputs`, `outputs`: inferred shapes, without those of parameters; an axis is a number, a name from the
          file ("batch"), or "?".
        - `parameters`: number of elements of the initializers that the node is the first to read, so that shared
          ones count once in a sum. Shapes, axes and other int64, bool and string constants do not count; the
          running mean and variance of a BatchNormalization do.
        - `macs`: multiply-accumulates of Conv, Gemm and MatMul, 0 for all other operators.
        - `parameter_bytes`, `output_bytes`: memory of these parameters and of the outputs.

    A dynamic axis counts as 1, so with a dynamic batch all figures are per image.

    Args:
        model: What `load` takes. Nodes inside an If or a Loop are not listed; local functions are inlined.
        dims: Sizes for the named axes, for example `batch=32`.

    Raises:
        ExchangeError: The model cannot be read, or `dims` names an axis that it does not have.
    """
    import pandas as pd

    shapes = Shapes(load(model), dims)
    seen: set[str] = set()
    rows = [_row(node, shapes, seen) for node in shapes.nodes]
    columns = ["name", "op", "inputs", "outputs", "parameters", "macs", "parameter_bytes", "output_bytes"]
    return pd.DataFrame(rows, columns=columns).astype({"parameters": "int64", "parameter_bytes": "int64"})


def _row(node: onnx.NodeProto, shapes: Shapes, seen: set[str]) -> dict[str, object]:
    inputs = [name for name in dict.fromkeys(node.input) if name]
    first_reads = [name for name in inputs if name in shapes.parameters and name not in seen]
    seen.update(first_reads)
    parameters = [shapes.parameters[name] for name in first_reads]
    outputs = [shapes[name] for name in node.output if name]
    return {
        "name": node.name or next(iter(node.output), ""),
        "op": node.op_type,
        "inputs": [shapes[name].shape for name in inputs if name not in shapes.constants],
        "outputs": [value.shape for value in outputs],
        "parameters": sum(value.count or 0 for value in parameters),
        "macs": _macs(node, shapes),
        "parameter_bytes": sum(value.bytes or 0 for value in parameters),
        "output_bytes": _sum(value.bytes for value in outputs),
    }


def _sum(values: Iterable[int | None]) -> int | None:
    total = 0
    for value in values:
        if value is None:
            return None
        total += value
    return total


def _macs(node: onnx.NodeProto, shapes: Shapes) -> int | None:
    """Return the number of multiply-accumulates, or None if a shape is unknown."""
    if node.op_type not in ("Conv", "Gemm", "MatMul") or node.domain not in ("", "ai.onnx"):
        return 0
    first, second, output = shapes[node.input[0]], shapes[node.input[1]], shapes[node.output[0]]
    length = _reduction_length(node, first, second)
    return None if output.count is None or length is None else output.count * length


def _reduction_length(node: onnx.NodeProto, first: Type, second: Type) -> int | None:
    """Return the number of products summed for each element of the output."""
    if node.op_type == "Conv":  # weights are [F, C / group, KH, KW]
        return None if second.sizes is None else math.prod(second.sizes[1:])
    transposed = any(attribute.name == "transA" and attribute.i for attribute in node.attribute)
    if first.sizes is not None:
        return first.sizes[0] if transposed else first.sizes[-1]
    return None
