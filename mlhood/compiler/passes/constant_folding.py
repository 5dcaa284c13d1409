"""Constant folding: what depends on constants alone is computed once, when compiling.

1. f(constants)  ->  constant                                 by the operator's reference semantics
2. Shape(x), Size(x)  ->  constant                            where all lengths asked for are numbers

A result that is larger than what it is made from is folded only up to `LARGEST_GROWTH` bytes, and no more than
`BUDGET` bytes are added in all: a file of a few bytes must not cost gigabytes. A Dequantize stays, since it says that a
weight is stored in eight bits.
"""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import as_tuple, footprint
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.creation import Shape, Size
from mlhood.compiler.operators.quantized import Dequantize
from mlhood.compiler.passes.rewriting import is_unread
from mlhood.errors import CompilerError

LARGEST_GROWTH = 2**20
BUDGET = 2**26
WORKSPACE = 2**29


def fold_constants(graph: Graph) -> bool:
    """Compute what is known when compiling; tell whether there was anything."""
    changed, added = False, 0
    for node in graph.topological() if any(map(_is_known, graph.nodes.values())) else ():
        if not _is_known(node):
            continue
        size = _growth(node)
        if size is None or added + size > BUDGET:
            continue
        arrays = _computed(node)
        if arrays is None:
            continue
        added += size - _replace(graph, node, arrays)
        changed = True
    return changed


def _is_known(node: Node) -> bool:
    if isinstance(node.operator, Dequantize):
        return False
    if isinstance(node.operator, (Shape, Size)):  # rule 2
        wanted = _asked(node)
        return all(isinstance(size, int) for size in wanted)
    read = [value for value in node.inputs if value is not None]
    return bool(read) and all(isinstance(value, Constant) for value in read)  # rule 1


def _asked(node: Node) -> tuple:
    shape = node.inputs[0].type.shape if node.inputs[0] is not None else ("unknown",)
    return shape[node.operator.start : node.operator.stop] if isinstance(node.operator, Shape) else shape


def _growth(node: Node) -> int | None:
    """Return the bytes of what a node makes; None if that is too much."""
    types = [None if value is None else value.type for value in node.inputs]
    if not isinstance(node.operator, (Shape, Size)) and _needed(node, types) > WORKSPACE:
        return None
    made = sum(_bytes(value) for value in node.outputs)
    read = sum(value.data.nbytes for value in node.inputs if isinstance(value, Constant))
    return made if made <= max(read, LARGEST_GROWTH) else None


def _needed(node: Node, types: list[TensorType | None]) -> int:
    """Return the bytes of the largest array on the way, such as a convolution's windows laid out."""
    made = [value.type for value in node.outputs]
    return footprint(node.operator, types, made) if all(isinstance(one.size, int) for one in made) else 2 * WORKSPACE


def _bytes(value: Value) -> int:
    size = value.type.size
    return size * value.type.dtype.itemsize if isinstance(size, int) else 2 * BUDGET


def _computed(node: Node) -> tuple[np.ndarray, ...] | None:
    if isinstance(node.operator, (Shape, Size)):
        asked = np.array(_asked(node), np.int64)
        return (asked if isinstance(node.operator, Shape) else np.array(np.prod(asked, dtype=np.int64)),)
    types = tuple(None if value is None else value.type for value in node.inputs)
    arrays = [value.data if isinstance(value, Constant) else None for value in node.inputs]
    try:
        with np.errstate(all="ignore"):
            results = as_tuple(node.operator.evaluate_typed(types, *arrays))
    except (CompilerError, ValueError, TypeError, ArithmeticError, LookupError, MemoryError):
        return None  # the interpreter says what is wrong, if the node ever runs
    promised = [(value.type.dtype, value.type.shape) for value in node.outputs]
    return results if [(array.dtype, array.shape) for array in results] == promised else None


def _replace(graph: Graph, node: Node, arrays: tuple[np.ndarray, ...]) -> int:
    """Put constants in a node's place; return how many bytes of constants are read no more, and gone."""
    made = [(value, value.name) for value in node.outputs]
    constants = [
        graph.constant(name, array, value.type.quantization) for (value, name), array in zip(made, arrays, strict=True)
    ]
    for (value, _), constant in zip(made, constants, strict=True):
        graph.replace_all_uses(value, constant)
    graph.remove(node)
    for (_, name), constant in zip(made, constants, strict=True):
        graph.rename(constant, name)
    return _released(graph, node)


def _released(graph: Graph, node: Node) -> int:
    freed = 0
    for value in dict.fromkeys(node.inputs):
        if isinstance(value, Constant) and is_unread(graph, value):
            freed += value.data.nbytes
            graph.remove_constant(value)
    return freed
