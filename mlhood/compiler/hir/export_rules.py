"""One rule an operator: the ONNX nodes for it.

A rule gets the writer, the node, and the names of the node's inputs as reals ("" for one left out). It returns the name
of the result; the last node it adds is to carry the given name.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from onnx import helper

from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators import arithmetic, elementwise, reduction
from mlhood.compiler.operators.activation import Activation, AddActivation, operator_of
from mlhood.compiler.operators.cast import Cast, Identity
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.creation import Shape, Size, Splat
from mlhood.compiler.operators.integer import QuantizedConv, QuantizedFullyConnected, QuantizedMatMul
from mlhood.compiler.operators.integer_arithmetic import QuantizedAdd, QuantizedMul
from mlhood.compiler.operators.integer_pooling import QuantizedAveragePool, QuantizedGlobalAveragePool
from mlhood.compiler.operators.lookup import Lookup, function_of
from mlhood.compiler.operators.matrix import FullyConnected, Gemm, MatMul
from mlhood.compiler.operators.movement import Concat, Expand, Gather, Slice, Tile, Transpose
from mlhood.compiler.operators.normalization import (
    BatchNormalization,
    InstanceNormalization,
    LocalResponseNormalization,
    LogSoftmax,
    Softmax,
)
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.padding import Pad
from mlhood.compiler.operators.pooling import AveragePool, GlobalAveragePool, GlobalMaxPool, MaxPool
from mlhood.compiler.operators.rescale import Rescale, parameters_of
from mlhood.compiler.operators.shape import Flatten, Reshape, Squeeze, Unsqueeze
from mlhood.errors import CompilerError

Names = list[str]
ExportRule = Callable[[OnnxWriter, Node, Names, str], str]
Attributes = Callable[[Any], dict[str, Any]]


def _plainly(op_type: str, attributes: Attributes = lambda operator: {}) -> ExportRule:
    """Return the rule of an operator that ONNX has as it is."""

    def rule(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
        return w.emit(op_type, *inputs, name=name, **attributes(node.operator))

    return rule


def _with_lists(op_type: str, attributes: Attributes, *lists: Callable[[Any], tuple[int, ...]]) -> ExportRule:
    """Return the rule of an operator whose lists of integers are further inputs in ONNX."""

    def rule(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
        more = [w.integers(of(node.operator)) for of in lists]
        return w.emit(op_type, *inputs, *more, name=name, **attributes(node.operator))

    return rule


def _activated(w: OnnxWriter, node: Node, activation: Activation, x: str, name: str) -> str:
    return _function(w, node, operator_of(activation), x, name) if activation else x


def _function(w: OnnxWriter, node: Node, operator: Operator, x: str, name: str) -> str:
    """Add a function of one tensor that is an attribute of a node."""
    return EXPORT_RULES[type(operator)](w, Node(node.name, operator, node.inputs), [x], name)


def _last(activation: Activation, name: str) -> str | None:
    """Return the name for a node's result if no activation follows."""
    return None if activation else name


def _window(operator: Any) -> dict[str, Any]:
    return {"strides": operator.strides, "pads": operator.pads, "dilations": operator.dilations}


def _conv(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    *read, z = inputs if len(inputs) == 4 else [*inputs, ""]
    if read[-1] == "":
        read.pop()
    y = w.emit(
        "Conv", *read, name=None if z else _last(operator.activation, name), group=operator.group, **_window(operator)
    )
    y = w.emit("Add", y, z, name=_last(operator.activation, name)) if z else y
    return _activated(w, node, operator.activation, y, name)


def _fully_connected(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    x, weight, *bias = inputs
    last = _last(operator.activation, name)
    if node.outputs[0].type.rank == 2:
        y = w.emit("Gemm", x, weight, *bias, name=last, transB=1)
    else:
        turned = w.emit("Transpose", weight, perm=(1, 0))
        y = w.emit("MatMul", x, turned, name=None if bias else last)
        y = w.emit("Add", y, *bias, name=last) if bias else y
    return _activated(w, node, operator.activation, y, name)


def _pair(op_type: str) -> ExportRule:
    def rule(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
        activation: Activation = getattr(node.operator, "activation", ())
        y = w.emit(op_type, *inputs, name=_last(activation, name))
        return _activated(w, node, activation, y, name)

    return rule


def _pool(op_type: str) -> ExportRule:
    def attributes(operator: Any) -> dict[str, Any]:
        dilations = operator.dilations if max(operator.dilations) > 1 else None
        window = {**_window(operator), "dilations": dilations, "kernel_shape": operator.kernel}
        counted = {"count_include_pad": operator.count_pads} if op_type == "AveragePool" else {}
        return {**window, **counted, "ceil_mode": operator.ceil}

    return _plainly(op_type, attributes)


def _max_pool(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    if not operator.indices:
        return _pool("MaxPool")(w, node, inputs, name)
    shape = {**_window(operator), "kernel_shape": operator.kernel, "ceil_mode": operator.ceil}
    names: list[str | None] = [name, w.name(node.outputs[1])]
    return w.emit_all("MaxPool", *inputs, names=names, storage_order=operator.column_major, **shape)[0]


def _clip(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    element = "float32" if node.inputs[0] is None or node.inputs[0].type.quantization else node.inputs[0].type.element
    limits = ["" if one is None else w.constant(np.array(one, element)) for one in (operator.low, operator.high)]
    return w.emit("Clip", *inputs, *limits, name=name)


def _pad(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    type = node.outputs[0].type
    fill = np.array(operator.value, type.dtype)
    if type.quantization is not None:
        parameters = parameters_of(type)
        fill = np.array(parameters.scale[0] * (operator.value - parameters.offset[0]), np.float32)
    more = [w.integers(operator.pads), w.constant(fill)]
    return w.emit("Pad", *inputs, *more, name=name, mode=operator.mode)


def _softmax(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    if len(operator.axes) != 1:
        raise CompilerError("ONNX has no such operator over several axes", where=node.where, got=operator.axes)
    return w.emit(type(operator).__name__, *inputs, name=name, axis=operator.axes[0])


def _splat(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    fill = helper.make_tensor("value", _code(operator.element), [1], [operator.value])
    return w.emit("ConstantOfShape", w.emit("Shape", *inputs), name=name, value=fill)


def _elu(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    if operator.gamma == 1:
        return w.emit("Elu", *inputs, name=name, alpha=operator.alpha)
    return w.emit("Selu", *inputs, name=name, alpha=operator.alpha, gamma=operator.gamma)


def _rescale(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    return _activated(w, node, operator.activation, inputs[0], name)


def _lookup(w: OnnxWriter, node: Node, inputs: Names, name: str) -> str:
    operator: Any = node.operator
    return _function(w, node, function_of(operator.function), inputs[0], name)


def _code(element: str) -> int:
    return int(helper.np_dtype_to_tensor_dtype(np.dtype(element)))


def _keeping(operator: Any) -> dict[str, Any]:
    return {"keepdims": operator.keep}


def _axes(operator: Any) -> tuple[int, ...]:
    return operator.axes


def _named(*operators: type[Operator]) -> dict[type[Operator], ExportRule]:
    return {operator: _plainly(operator.__name__) for operator in operators}


EXPORT_RULES: dict[type[Operator], ExportRule] = {
    Conv: _conv,
    MatMul: _plainly("MatMul"),
    Gemm: _plainly(
        "Gemm", lambda o: {"alpha": o.alpha, "beta": o.beta, "transA": o.transpose_a, "transB": o.transpose_b}
    ),
    FullyConnected: _fully_connected,
    MaxPool: _max_pool,
    AveragePool: _pool("AveragePool"),
    **_named(GlobalAveragePool, GlobalMaxPool, Identity, Size),
    BatchNormalization: _plainly("BatchNormalization", lambda o: {"epsilon": o.epsilon}),
    InstanceNormalization: _plainly("InstanceNormalization", lambda o: {"epsilon": o.epsilon}),
    LocalResponseNormalization: _plainly(
        "LRN", lambda o: {"size": o.size, "alpha": o.alpha, "beta": o.beta, "bias": o.bias}
    ),
    Softmax: _softmax,
    LogSoftmax: _softmax,
    **_named(*elementwise.FUNCTIONS, elementwise.Round, elementwise.Relu),
    elementwise.LeakyRelu: _plainly("LeakyRelu", lambda o: {"alpha": o.alpha}),
    elementwise.HardSigmoid: _plainly("HardSigmoid", lambda o: {"alpha": o.alpha, "beta": o.beta}),
    elementwise.Gelu: _plainly("Gelu", lambda o: {"approximate": o.approximate}),
    elementwise.Elu: _elu,
    elementwise.Clip: _clip,
    **_named(*arithmetic.OPERATORS),
    AddActivation: _pair("Add"),
    **{one: _with_lists(one.__name__, _keeping, _axes) for one in reduction.REDUCTIONS},
    reduction.ArgMax: _plainly("ArgMax", lambda o: {"axis": o.axis, "select_last_index": o.last, **_keeping(o)}),
    reduction.ArgMin: _plainly("ArgMin", lambda o: {"axis": o.axis, "select_last_index": o.last, **_keeping(o)}),
    Reshape: _with_lists("Reshape", lambda o: {"allowzero": o.allow_zero or None}, lambda o: o.shape),
    Flatten: _plainly("Flatten", lambda o: {"axis": o.axis}),
    Squeeze: _with_lists("Squeeze", lambda o: {}, _axes),
    Unsqueeze: _with_lists("Unsqueeze", lambda o: {}, _axes),
    Transpose: _plainly("Transpose", lambda o: {"perm": o.permutation}),
    Concat: _plainly("Concat", lambda o: {"axis": o.axis}),
    Slice: _with_lists("Slice", lambda o: {}, lambda o: o.starts, lambda o: o.stops, _axes, lambda o: o.steps),
    Gather: _plainly("Gather", lambda o: {"axis": o.axis}),
    Expand: _with_lists("Expand", lambda o: {}, lambda o: o.shape),
    Tile: _with_lists("Tile", lambda o: {}, lambda o: o.repeats),
    Pad: _pad,
    Cast: _plainly("Cast", lambda o: {"to": _code(o.element)}),
    Shape: _plainly("Shape", lambda o: {"start": o.start or None, "end": o.stop}),
    Splat: _splat,
    QuantizedConv: _conv,
    QuantizedFullyConnected: _fully_connected,
    QuantizedMatMul: _plainly("MatMul"),
    QuantizedAdd: _pair("Add"),
    QuantizedMul: _pair("Mul"),
    QuantizedAveragePool: _pool("AveragePool"),
    QuantizedGlobalAveragePool: _plainly("GlobalAveragePool"),
    Rescale: _rescale,
    Lookup: _lookup,
}
