"""Quantisation clean-up: no way to reals and back where the integers would do.

1. Quantize(Dequantize(x)) with the parameters of x  ->  x      of 8 and 16 bits, which float32 holds exactly
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.passes.rewriting import bypass, is_unread, made_by, sweep

_EXACT = ("int8", "uint8", "int16", "uint16")


def clean_quantization(graph: Graph) -> bool:
    """Remove conversions between integers and reals that change nothing; tell whether there were any."""
    return sweep(graph, _clean, Quantize)


def _clean(graph: Graph, node: Node) -> bool:
    before = made_by(node.inputs[0], Dequantize)
    x = before.inputs[0] if before else None
    if before is None or x is None or x.type != node.outputs[0].type or x.type.element not in _EXACT:
        return False
    bypass(graph, node, x)  # rule 1
    if is_unread(graph, before.outputs[0]):
        graph.remove(before)
    return True
