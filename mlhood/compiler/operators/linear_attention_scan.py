"""The export of linear attention: a Scan over the steps."""

from __future__ import annotations

import numpy as np
from onnx import GraphProto, TensorProto, helper, numpy_helper

from mlhood.compiler.operators.cast import number_of
from mlhood.compiler.operators.onnx_writer import OnnxWriter

_FLOAT = TensorProto.FLOAT


def scan_to_onnx(writer: OnnxWriter, heads: int, kv_heads: int, scale: float, inputs: list[str], name: str) -> str:
    """Add a Scan of steps that compute in float32, and what splits and joins the heads; see `LinearAttention`.

    Args:
        writer: The graph that is written.
        heads: Number of heads of the queries.
        kv_heads: Number of heads of the keys and values.
        scale: Factor of the results.
        inputs: Names of the inputs.
        name: Of the result.
    """
    q, k, v, past, decay, beta = (*inputs, *[""] * (6 - len(inputs)))
    y, last = (value.type for value in writer.node.outputs)
    size, depth = map(int, last.shape[2:])
    rows = {"q": (q, (kv_heads, heads // kv_heads, size)), "k": (k, (kv_heads, size, 1))}
    widths = [value.type.shape[-1] if value else 0 for value in writer.node.inputs]
    rows["v"] = v, (kv_heads, 1, depth)
    if decay:
        rows["decay"] = decay, (kv_heads, int(widths[4]) // kv_heads, 1)
    if beta:
        rows["beta"] = beta, (int(widths[5]), 1, 1)
    given = {key: _steps(writer, x, shape) for key, (x, shape) in rows.items()}
    if past:
        state = writer.emit("Cast", past, to=_FLOAT)
    else:
        batch = writer.emit("Shape", q, start=0, end=1)
        shape = writer.emit("Concat", batch, writer.integers((kv_heads, size, depth)), axis=0)
        state = writer.emit("ConstantOfShape", shape)
    body = _body(list(given), scale)
    state, results = writer.emit_all(
        "Scan", state, *given.values(), names=[None, None], body=body, num_scan_inputs=len(given)
    )
    writer.emit("Cast", state, to=number_of(last.element), name=writer.name(writer.node.outputs[1]))
    joined = writer.emit("Transpose", results, perm=(1, 0, 2, 3, 4))
    joined = writer.emit("Reshape", joined, writer.integers((0, 0, heads * depth)))
    return writer.emit("Cast", joined, to=number_of(y.element), name=name)


def _steps(writer: OnnxWriter, x: str, shape: tuple[int, ...]) -> str:
    """Add what brings an input [batch, steps, features] to [steps, batch, ...] in float32."""
    split = writer.emit("Reshape", writer.emit("Cast", x, to=_FLOAT), writer.integers((0, 0, *shape)))
    return writer.emit("Transpose", split, perm=(1, 0, *range(2, 2 + len(shape))))


def _body(names: list[str], scale: float) -> GraphProto:
    """Return the graph of one step: the state before and the step's inputs, the state after and the result."""
    nodes, state, row = [], "before", "v"
    if "decay" in names:
        nodes += [helper.make_node("Exp", ["decay"], ["factor"]), helper.make_node("Mul", [state, "factor"], ["kept"])]
        state = "kept"
    if "beta" in names:
        nodes += [
            helper.make_node("Transpose", ["k"], ["key"], perm=[0, 1, 3, 2]),
            helper.make_node("MatMul", ["key", state], ["held"]),
            helper.make_node("Sub", ["v", "held"], ["new"]),
            helper.make_node("Mul", ["beta", "new"], ["row"]),
        ]
        row = "row"
    nodes += [
        helper.make_node("Mul", ["k", row], ["product"]),
        helper.make_node("Add", [state, "product"], ["after"]),
        helper.make_node("MatMul", ["q", "after"], ["read"]),
        helper.make_node("Mul", ["read", "scale"], ["result"]),
    ]
    inputs = [helper.make_tensor_value_info(name, _FLOAT, [None] * 4) for name in ("before", *names)]
    outputs = [helper.make_tensor_value_info(name, _FLOAT, [None] * 4) for name in ("after", "result")]
    constants = [numpy_helper.from_array(np.array(scale, np.float32), "scale")]
    return helper.make_graph(nodes, "step", inputs, outputs, constants)
