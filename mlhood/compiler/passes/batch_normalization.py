"""Batch normalisation: folded into the layer before it.

    a = scale / sqrt(variance + epsilon)

1. BatchNormalization(Conv(x, w, bias))            ->  Conv(x, a w, a (bias - mean) + bias of the normalisation)
2. BatchNormalization(FullyConnected(x, w, bias))  ->  FullyConnected, likewise, where the output is a matrix

Refused if the layer has another reader or is an output of the graph, if it already has an activation or a residual
branch, if the weights or statistics are not constants, and if a variance makes a number that is not finite.

Source: B. Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference",
CVPR 2018, equation 14.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.passes.affine import fold_into_layer
from mlhood.compiler.passes.rewriting import sweep


def fold_batch_normalization(graph: Graph) -> bool:
    """Fold normalisations into the layers before them; tell whether there were any."""
    return sweep(graph, fold_into_layer, BatchNormalization)
