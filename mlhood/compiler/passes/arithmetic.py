"""Arithmetic with constants behind a layer: folded into its weight and bias.

With c one number, or one for each output channel, and layer being Conv or FullyConnected:

1. layer(x, w, bias) + c                          ->  layer(x, w, bias + c)
2. layer(x, w, bias) - c                          ->  layer(x, w, bias - c)
3. c - layer(x, w, bias)                          ->  layer(x, -w, c - bias)
4. layer(x, w, bias) * c                          ->  layer(x, c w, c bias)
5. layer(x, w, bias) / c                          ->  layer(x, w / c, bias / c)
6. BatchNormalization behind such arithmetic      ->  as in `batch_normalization`, so that a mixed row folds in one go

Refused as in `batch_normalization`; with a residual branch, rules 1 and 2 still hold.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.operators.arithmetic import Add, Div, Mul, Sub
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.passes.affine import fold_into_layer
from mlhood.compiler.passes.rewriting import sweep


def fold_arithmetic(graph: Graph) -> bool:
    """Fold arithmetic with constants into the layers before it; tell whether there was any."""
    return sweep(graph, fold_into_layer, Add, Sub, Mul, Div, BatchNormalization)
