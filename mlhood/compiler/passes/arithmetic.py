"""Folding of arithmetic with constants into the weight and bias of the preceding layer.

With c a scalar or one number per output channel, and layer one of Conv, FullyConnected, ConvTranspose:

1. layer(x, w, bias) + c                          ->  layer(x, w, bias + c)
2. layer(x, w, bias) - c                          ->  layer(x, w, bias - c)
3. c - layer(x, w, bias)                          ->  layer(x, -w, c - bias)
4. layer(x, w, bias) * c                          ->  layer(x, c w, c bias)
5. layer(x, w, bias) / c                          ->  layer(x, w / c, bias / c)
6. BatchNormalization after such arithmetic       ->  as in `batch_normalization`, to fold a mixed chain in one run

Not applied in the same cases as `batch_normalization`, except that rules 1 and 2 allow a residual branch.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.passes.affine import fold_into_layer
from mlhood.compiler.passes.rewriting import sweep


def fold_arithmetic(graph: Graph) -> bool:
    """Fold arithmetic with constants into the preceding layers; return whether anything changed."""
    return sweep(graph, fold_into_layer, Add, Sub, Mul, Div, BatchNormalization)
