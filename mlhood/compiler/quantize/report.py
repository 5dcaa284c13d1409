"""The loss due to quantisation, for a model and per layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.quantize.schema import dequantize_array, quantize_array
from mlhood.errors import CompilerError

if TYPE_CHECKING:
    import pandas as pd

Inputs = Mapping[str, np.ndarray]


def sqnr(reference: np.ndarray, approximation: np.ndarray) -> float:
    """Return the ratio of signal to quantisation noise in dB: 10 log10(sum x^2 / sum (x - y)^2).

    6 dB correspond to one bit. Infinite if both are equal.

    Raises:
        CompilerError: The arrays differ in shape.
    """
    if reference.shape != approximation.shape:
        raise CompilerError("the arrays differ in shape", expected=list(reference.shape), got=list(approximation.shape))
    signal = float(np.sum(np.square(reference, dtype=np.float64)))
    noise = float(np.sum(np.square(reference.astype(np.float64) - approximation)))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def kept_in_float(quantized: Graph) -> list[str]:
    """Return the nodes of a quantised graph that compute in float: `softmax (Softmax)`."""
    nodes = [node for node in quantized.topological() if not isinstance(node.operator, Quantize | Dequantize)]
    return [
        f"{node.name} ({node.operator.name})"
        for node in nodes
        if any(value.type.is_float for value in (*node.outputs, *node.inputs) if value is not None)
    ]


def constant_bytes(graph: Graph) -> int:
    """Return the size in bytes of a graph's weights and other constants."""
    return sum(constant.data.nbytes for constant in graph.constants.values())


def summary(graph: Graph, quantized: Graph, inputs: Inputs, labels: np.ndarray | None = None) -> dict[str, Any]:
    """Compare a quantised graph with the float one on the first output, of shape [N, classes].

    Returns:
        accuracy: Fraction of correctly predicted labels; NaN without labels.
        agreement: Fraction of rows with the same predicted class in both graphs.
        sqnr: SQNR of the output in dB.
        bytes: Size of the quantised graph's constants.
        nodes: Number of its nodes.
        kept_in_float: See `kept_in_float`.
    """
    name = next(iter(graph.outputs))
    expected, actual = Interpreter(graph).run(inputs)[name], Interpreter(quantized).run(inputs)[name]
    predicted = actual.argmax(axis=-1)
    return {
        "accuracy": math.nan if labels is None else float(np.mean(predicted == labels)),
        "agreement": float(np.mean(predicted == expected.argmax(axis=-1))),
        "sqnr": sqnr(expected, actual),
        "bytes": constant_bytes(quantized),
        "nodes": len(quantized.nodes),
        "kept_in_float": kept_in_float(quantized),
    }


def layer_sqnr(graph: Graph, quantized: Graph, inputs: Inputs) -> pd.DataFrame:
    """Attribute the loss to layers: compare each value that both graphs compute, in execution order.

    Args:
        graph: The float graph that was quantised.
        quantized: The quantised graph.
        inputs: Arrays for one run.

    Returns:
        A row for each quantised input and each value, indexed by the value's name:

        - node: The node that defines it.
        - operator: The node's operator in the quantised graph.
        - element: The value's element type.
        - sqnr: dB, including the loss of all layers before.
        - alone: dB, with the node's inputs taken from the float graph: the loss due to quantising this layer's inputs,
          weights and result.
    """
    import pandas as pd

    floats = _record(graph, inputs)
    integers = _record(quantized, inputs)
    rows = []
    for node in quantized.topological():
        (value, *_), name = node.outputs, _name_in_float_graph(graph, node)
        if name in floats and floats[name].dtype.kind == "f":
            accumulated = sqnr(floats[name], _to_float(value, integers[value.name]))
            alone = sqnr(floats[name], _to_float(value, _evaluate(node, floats)))
            rows.append((name, node.name, node.operator.name, value.type.element, accumulated, alone))
    table = pd.DataFrame(rows, columns=["value", "node", "operator", "element", "sqnr", "alone"])
    return table.astype({"sqnr": float, "alone": float}).set_index("value")


def output_sqnr(graph: Graph, quantized: Graph, inputs: Inputs) -> dict[str, float]:
    """Return what each layer costs at the graph's first output: its SQNR in dB if only this layer is quantised.

    The layer's weights and result are rounded; its inputs, and all other layers, are float, so that each rounding
    belongs to one layer. Layers that round nothing, such as a max pooling of integers, are left out.
    It runs what follows a layer again for each layer: meant for small graphs.

    Args:
        graph: The float graph that was quantised.
        quantized: The quantised graph.
        inputs: Arrays for one run.
    """
    floats, output = _record(graph, inputs), next(iter(graph.outputs.values())).name
    costs = {}
    for node in quantized.topological():
        (value, *_), name = node.outputs, _name_in_float_graph(graph, node)
        if name not in floats or value.type.quantization is None:
            continue
        layer = graph.value(name).producer
        if layer is None or layer.operator != node.operator:
            exact = floats[name] if layer is None else _with_weights_of(layer, node, floats)
            rounded = _to_float(value, quantize_array(exact, value.type.quantization, value.type.element))
            costs[name] = sqnr(floats[output], _with_value(graph, floats, name, rounded)[output])
    return costs


def _with_weights_of(layer: Node, quantized: Node, floats: dict[str, np.ndarray]) -> np.ndarray:
    """Return a layer's result in float, with the weights of its quantised node."""
    arrays = [None if value is None else _input_array(value, floats) for value in layer.inputs]
    # constants of the layer may be in the quantised operator, which then has fewer inputs
    for i, rounded in enumerate(quantized.inputs[: len(arrays)]):
        if isinstance(rounded, Constant):
            arrays[i] = _to_float(rounded, rounded.data)
    return as_tuple(layer.operator.evaluate(*arrays))[0]


def _with_value(graph: Graph, arrays: dict[str, np.ndarray], name: str, array: np.ndarray) -> dict[str, np.ndarray]:
    """Return the values of a run in which one value is another array: those that depend on it are computed again."""
    changed = {name: array}
    for node in graph.topological():
        if any(value is not None and value.name in changed for value in node.inputs):
            results = _evaluate_all(node, arrays | changed)
            changed |= zip((value.name for value in node.outputs), results, strict=True)
    return arrays | changed


def _name_in_float_graph(graph: Graph, node: Node) -> str:
    """Return the name of a node's result in the float graph: for a quantised placeholder, the placeholder's."""
    (x, *_) = node.inputs or (None,)
    if isinstance(node.operator, Quantize) and x is not None and x.name in graph.placeholders:
        return x.name
    return node.outputs[0].name


def _record(graph: Graph, inputs: Inputs) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    Interpreter(graph).run(inputs, lambda value, array: arrays.update({value.name: array}))
    return arrays


def _to_float(value: Value, array: np.ndarray) -> np.ndarray:
    return array if value.type.quantization is None else dequantize_array(array, value.type.quantization)


def _evaluate(node: Node, floats: dict[str, np.ndarray]) -> np.ndarray:
    """Return a node's result on the float graph's values, quantised to the types of its inputs."""
    return _evaluate_all(node, floats)[0]


def _evaluate_all(node: Node, floats: dict[str, np.ndarray]) -> tuple[np.ndarray, ...]:
    arrays = [None if value is None else _input_array(value, floats) for value in node.inputs]
    types = tuple(None if value is None else value.type for value in node.inputs)
    with np.errstate(all="ignore"):
        return as_tuple(node.operator.evaluate_typed(types, *arrays))


def _input_array(value: Value, floats: dict[str, np.ndarray]) -> np.ndarray:
    if isinstance(value, Constant):
        return value.data
    if value.name in floats:
        array, quantization = floats[value.name], value.type.quantization
        return array if quantization is None else quantize_array(array, quantization, value.type.element)
    if value.producer is None:
        raise CompilerError("the float graph does not have this input", where=f"value {value.name!r}")
    return _evaluate(value.producer, floats)
