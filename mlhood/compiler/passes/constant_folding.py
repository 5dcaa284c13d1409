"""Constant folding: evaluate nodes with constant inputs at compile time."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple, footprint
from mlhood.compiler.hir.values import Constant, Node
from mlhood.compiler.operators.creation import Shape
from mlhood.compiler.operators.movement import Slice
from mlhood.compiler.operators.quantized import Dequantize
from mlhood.compiler.passes.rewriting import defining_node, has_no_uses
from mlhood.errors import CompilerError

MAX_RESULT_BYTES = 2**20
MAX_ADDED_BYTES = 2**26
MAX_WORKSPACE_BYTES = 2**29


def fold_constants(graph: Graph) -> bool:
    """Replace nodes with constant results by constants; return whether anything changed.

    1. f(constants)              ->  constant    by the operator's reference semantics
    2. Shape(x), Slice(Shape(x)) ->  constant    if all sizes involved are static

    A result that is larger than its inputs is folded only up to `MAX_RESULT_BYTES`, and at most `MAX_ADDED_BYTES` are
    added in total, so that a small file cannot expand to gigabytes. A Dequantize is not folded, because it keeps a
    weight in eight bits.
    """
    changed, added = False, 0
    for node in graph.topological() if any(map(_is_constant, graph.nodes.values())) else ():
        size = _result_bytes(node) if _is_constant(node) else None
        if size is None or added + size > MAX_ADDED_BYTES:
            continue
        arrays = _evaluate(node)
        if arrays is not None:
            added += size - _replace(graph, node, arrays)
            changed = True
    return changed


def _is_constant(node: Node) -> bool:
    if isinstance(node.operator, Dequantize):
        return False
    lengths = _lengths(node)
    if lengths is not None:  # rule 2
        return all(isinstance(length, int) for length in lengths)
    inputs = [value for value in node.inputs if value is not None]
    return bool(inputs) and all(isinstance(value, Constant) for value in inputs)  # rule 1


def _lengths(node: Node) -> tuple | None:
    """Return the lengths of axes that a Shape, or a Slice of one, gives; None for other nodes."""
    x, operator = node.inputs[0] if node.inputs else None, node.operator
    if isinstance(operator, Shape) and x is not None:
        return x.type.shape[operator.start : operator.stop]
    shape = defining_node(x, Shape) if isinstance(operator, Slice) else None
    lengths = _lengths(shape) if shape else None
    return None if lengths is None else tuple(operator.evaluate(np.array(lengths, object)))


def _result_bytes(node: Node) -> int | None:
    """Return the size of a node's results in bytes; None if it is unknown, or if it or the workspace is too large."""
    types = [value.type for value in node.outputs]
    sizes = [type.size * type.dtype.itemsize for type in types if isinstance(type.size, int)]
    if len(sizes) < len(types):
        return None
    if not isinstance(node.operator, Shape):
        inputs = [None if value is None else value.type for value in node.inputs]
        if footprint(node.operator, inputs, types) > MAX_WORKSPACE_BYTES:  # such as a convolution's im2col matrix
            return None
    input_bytes = sum(value.data.nbytes for value in node.inputs if isinstance(value, Constant))
    return sum(sizes) if sum(sizes) <= max(input_bytes, MAX_RESULT_BYTES) else None


def _evaluate(node: Node) -> tuple[np.ndarray, ...] | None:
    lengths = _lengths(node)
    if lengths is not None:
        return (np.array(lengths, np.int64),)
    types = tuple(None if value is None else value.type for value in node.inputs)
    arrays = [value.data if isinstance(value, Constant) else None for value in node.inputs]
    try:
        with np.errstate(all="ignore"):
            results = as_tuple(node.operator.evaluate_typed(types, *arrays))
    except (CompilerError, ValueError, TypeError, ArithmeticError, LookupError, MemoryError):
        return None  # the interpreter reports the error if the node is ever executed
    inferred = [(value.type.dtype, value.type.shape) for value in node.outputs]
    return results if [(array.dtype, array.shape) for array in results] == inferred else None


def _replace(graph: Graph, node: Node, arrays: tuple[np.ndarray, ...]) -> int:
    """Replace a node by constants; return the bytes of its inputs that are unused afterwards and were removed."""
    constants = []
    for value, array in zip(node.outputs, arrays, strict=True):
        constants.append((graph.constant(value.name, array, value.type.quantization), value.name))
        graph.replace_all_uses(value, constants[-1][0])
    graph.remove(node)
    for constant, name in constants:
        graph.rename(constant, name)
    freed = 0
    for value in dict.fromkeys(node.inputs):
        if isinstance(value, Constant) and has_no_uses(graph, value):
            freed += value.data.nbytes
            graph.remove_constant(value)
    return freed
