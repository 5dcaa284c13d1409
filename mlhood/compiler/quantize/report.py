"""What quantising has cost: for the whole model, and layer by layer."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.quantize.profile import Profile
from mlhood.compiler.quantize.quantize import quantize
from mlhood.compiler.quantize.recipe import Recipe
from mlhood.compiler.quantize.schema import dequantize_array, quantize_array
from mlhood.errors import CompilerError

Inputs = Mapping[str, np.ndarray]


def sqnr(reference: np.ndarray, approximation: np.ndarray) -> float:
    """Return the ratio of signal to quantisation noise in dB: 10 log10(sum x^2 / sum (x - y)^2).

    6 dB are one bit. Infinite where both are equal.

    Raises:
        CompilerError: The arrays differ in shape.
    """
    if reference.shape != approximation.shape:
        raise CompilerError(
            "arrays of two shapes cannot be compared", expected=list(reference.shape), got=list(approximation.shape)
        )
    signal = float(np.sum(np.square(reference, dtype=np.float64)))
    noise = float(np.sum(np.square(reference.astype(np.float64) - approximation)))
    if noise == 0:
        return math.inf
    return 10 * math.log10(signal / noise) if signal else -math.inf


def kept_in_float(quantized: Graph) -> list[str]:
    """Return which nodes of a quantised graph compute with reals: `softmax (Softmax)`."""
    found = [node for node in quantized.topological() if not isinstance(node.operator, Quantize | Dequantize)]
    return [
        f"{node.name} ({node.operator.name})"
        for node in found
        if any(value.type.is_float for value in (*node.outputs, *node.inputs) if value is not None)
    ]


def constant_bytes(graph: Graph) -> int:
    """Return how many bytes a graph's weights and other constants take."""
    return sum(constant.data.nbytes for constant in graph.constants.values())


def summary(graph: Graph, quantized: Graph, inputs: Inputs, labels: np.ndarray | None = None) -> dict[str, Any]:
    """Compare a quantised graph with the float one on the first output, of shape [N, classes].

    Returns:
        accuracy: Share of the labels that are right, from 0 to 1; NaN without labels.
        agreement: Share of the rows with the same largest element in both graphs, from 0 to 1.
        sqnr: Of the output, in dB.
        bytes: Of the quantised graph's constants.
        nodes: How many it has.
        kept_in_float: See there.
    """
    name = next(iter(graph.outputs))
    wanted, got = Interpreter(graph).run(inputs)[name], Interpreter(quantized).run(inputs)[name]
    chosen = got.argmax(axis=-1)
    return {
        "accuracy": math.nan if labels is None else float(np.mean(chosen == labels)),
        "agreement": float(np.mean(chosen == wanted.argmax(axis=-1))),
        "sqnr": sqnr(wanted, got),
        "bytes": constant_bytes(quantized),
        "nodes": len(quantized.nodes),
        "kept_in_float": kept_in_float(quantized),
    }


def compare(
    graph: Graph, profile: Profile, recipes: Mapping[str, Recipe], inputs: Inputs, labels: np.ndarray | None = None
) -> pd.DataFrame:
    """Quantise a graph by several recipes and return a row for each, below one for the float graph; see `summary`."""
    rows = {"float": summary(graph, graph, inputs, labels)}
    rows |= {name: summary(graph, quantize(graph, profile, one), inputs, labels) for name, one in recipes.items()}
    return pd.DataFrame.from_dict(rows, orient="index")


def layer_sqnr(graph: Graph, quantized: Graph, inputs: Inputs) -> pd.DataFrame:
    """Say where the loss came from: compare each value that both graphs make, in the order in which they make them.

    Args:
        graph: The float graph that was quantised.
        quantized: What became of it.
        inputs: Arrays for one run.

    Returns:
        A row for each quantised input (as it is stored) and each value, indexed by the value's name:
        node: The node that makes it.
        operator: What that does in the quantised graph.
        element: How the value is stored.
        sqnr: dB, as the quantised graph ran: with the loss of all layers before.
        alone: dB, if what the node reads comes from the float graph: the loss of this layer's own integers, of what it
            reads, its weights and its result.
    """
    reals = _recorded(graph, inputs)
    stored = _recorded(quantized, inputs)
    rows = []
    for node in quantized.topological():
        (value, *_), name = node.outputs, _name_in(graph, node)
        if name in reals and reals[name].dtype.kind == "f":
            alone = _as_reals(value, _evaluated(node, reals))
            rows.append(
                {
                    "value": name,
                    "node": node.name,
                    "operator": node.operator.name,
                    "element": value.type.element,
                    "sqnr": sqnr(reals[name], _as_reals(value, stored[value.name])),
                    "alone": sqnr(reals[name], alone),
                }
            )
    table = pd.DataFrame(rows, columns=["value", "node", "operator", "element", "sqnr", "alone"])
    return table.astype({"sqnr": float, "alone": float}).set_index("value")


def _name_in(graph: Graph, node: Node) -> str:
    """Return the name that a node's result has in the float graph: that of the placeholder, where it stores one."""
    (x, *_) = node.inputs or (None,)
    if isinstance(node.operator, Quantize) and x is not None and x.name in graph.placeholders:
        return x.name
    return node.outputs[0].name


def _recorded(graph: Graph, inputs: Inputs) -> dict[str, np.ndarray]:
    arrays = {name: np.asarray(array) for name, array in inputs.items()}
    Interpreter(graph).run(inputs, lambda value, array: arrays.update({value.name: array}))
    return arrays


def _as_reals(value: Value, array: np.ndarray) -> np.ndarray:
    return array if value.type.quantization is None else dequantize_array(array, value.type.quantization)


def _evaluated(node: Node, reals: dict[str, np.ndarray]) -> np.ndarray:
    """Return what a node makes of the float graph's values, stored as it reads them."""
    read = [None if value is None else _fed(value, reals) for value in node.inputs]
    types = tuple(None if value is None else value.type for value in node.inputs)
    with np.errstate(all="ignore"):
        return as_tuple(node.operator.evaluate_typed(types, *read))[0]


def _fed(value: Value, reals: dict[str, np.ndarray]) -> np.ndarray:
    if isinstance(value, Constant):
        return value.data
    if value.name in reals:
        array, quantization = reals[value.name], value.type.quantization
        return array if quantization is None else quantize_array(array, quantization, value.type.element)
    if value.producer is None:
        raise CompilerError("the float graph does not have this input", where=f"value {value.name!r}")
    return _evaluated(value.producer, reals)
