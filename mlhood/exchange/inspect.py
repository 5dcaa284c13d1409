"""Tables of a graph: operators, shapes, parameters, multiply-accumulates and bytes."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable
from pathlib import Path

import onnx
import pandas as pd

from mlhood.exchange.load import load
from mlhood.exchange.shapes import Shapes, Type

_Model = str | Path | bytes | onnx.ModelProto


def operator_counts(model: _Model) -> pd.Series:
    """Count the nodes of each operator, most frequent first.

    Args:
        model: What `load` takes.

    Raises:
        ExchangeError: The model cannot be read.
    """
    counts = Counter(node.op_type for node in load(model).graph.node)
    ordered = dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))
    return pd.Series(ordered, name="count", dtype="int64").rename_axis("operator")


def node_table(model: _Model, **dims: int) -> pd.DataFrame:
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
    shapes = Shapes(load(model), dims)
    seen: set[str] = set()
    rows = [_row(node, shapes, seen) for node in shapes.nodes]
    table = pd.DataFrame(rows, columns=_COLUMNS)
    return table.astype({"parameters": "int64", "parameter_bytes": "int64"})


_COLUMNS = ["name", "op", "inputs", "outputs", "parameters", "macs", "parameter_bytes", "output_bytes"]


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
