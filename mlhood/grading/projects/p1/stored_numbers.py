"""Facts about a student's ONNX file beyond those of the oracle; the functions run in a limited process.

How many numbers it holds is counted from its bytes, wherever they are: initializers, constants, long attributes,
subgraphs and functions.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import Any

SHORT = 8  # an attribute of up to so many numbers describes an operator (kernel, strides, padding), not data
RANDOM = ("RandomNormal", "RandomNormalLike", "RandomUniform", "RandomUniformLike", "Bernoulli", "Multinomial")
BYTES_OF_A_NUMBER = 4


def versions(data: bytes) -> list[int]:
    """Return the IR version of a model, and the version of ONNX's own operators; 0 if there is none."""
    import onnx

    model = onnx.load_model_from_string(data)
    opsets = [opset.version for opset in model.opset_import if opset.domain in ("", "ai.onnx")]
    return [model.ir_version, opsets[0] if len(opsets) == 1 else 0]


def count(data: bytes) -> int:
    """Return how many numbers an ONNX model holds; one of more than four bytes, such as an int64, counts as two.

    Raises:
        ValueError: It may hold more than can be counted: external data, or operators that are not ONNX's own or that
            draw random numbers.
    """
    import onnx

    model = onnx.load_model_from_string(data)
    nodes = list(_nodes([*model.graph.node, *(node for function in model.functions for node in function.node)]))
    domains = {"", "ai.onnx", *(function.domain for function in model.functions)}
    for node in nodes:
        if node.domain not in domains or node.op_type in RANDOM:
            raise ValueError(f"the operator {node.op_type} is not allowed: only ONNX's own, and none that is random")
    graphs = [model.graph, *(graph for node in nodes for graph in _graphs(node))]
    defaults = [attribute for function in model.functions for attribute in function.attribute_proto]
    return (
        sum(_tensor(tensor) for graph in graphs for tensor in graph.initializer)
        + sum(_sparse(tensor) for graph in graphs for tensor in graph.sparse_initializer)
        + sum(_attribute(each, data=node.op_type == "Constant") for node in nodes for each in node.attribute)
        + sum(_attribute(each, data=True) for each in defaults)
    )


def _nodes(nodes: Iterable[Any]) -> Iterator[Any]:
    for node in nodes:
        yield node
        for graph in _graphs(node):
            yield from _nodes(graph.node)


def _graphs(node: Any) -> Iterator[Any]:
    for attribute in node.attribute:
        if attribute.HasField("g"):
            yield attribute.g
        yield from attribute.graphs


def _tensor(tensor: Any) -> int:
    import numpy as np
    from onnx import TensorProto, helper

    if tensor.data_location == TensorProto.EXTERNAL:
        raise ValueError("the numbers are in another file")
    if tensor.data_type == TensorProto.STRING:
        return sum(map(_text, tensor.string_data))
    elements = 1
    for dim in tensor.dims:
        elements *= dim
    size = np.dtype(helper.tensor_dtype_to_np_dtype(tensor.data_type)).itemsize
    return elements * -(-size // BYTES_OF_A_NUMBER)


def _sparse(tensor: Any) -> int:
    return _tensor(tensor.values) + _tensor(tensor.indices)


def _attribute(attribute: Any, *, data: bool) -> int:
    tensors = [*attribute.tensors, *([attribute.t] if attribute.HasField("t") else [])]
    sparse = [*attribute.sparse_tensors, *([attribute.sparse_tensor] if attribute.HasField("sparse_tensor") else [])]
    numbers = len(attribute.floats) + 2 * len(attribute.ints)
    single = data and (attribute.HasField("f") or attribute.HasField("i"))
    texts = sum(map(_text, [*attribute.strings, attribute.s]))
    listed = numbers if data or len(attribute.floats) + len(attribute.ints) > SHORT else 0
    return (
        sum(map(_tensor, tensors))
        + sum(map(_sparse, sparse))
        + listed
        + int(single)
        + (texts if data or texts > SHORT else 0)
    )


def _text(text: bytes) -> int:
    return -(-len(text) // BYTES_OF_A_NUMBER)
