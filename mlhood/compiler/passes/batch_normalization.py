"""Folding of batch normalization into the preceding layer.

    a = scale / sqrt(variance + epsilon)

1. BatchNormalization(Conv(x, w, bias))            ->  Conv(x, a w, a (bias - mean) + bias of the normalization)
2. BatchNormalization(FullyConnected(x, w, bias))  ->  FullyConnected, likewise, if the output is a matrix
3. BatchNormalization(ConvTranspose(x, w, bias))   ->  ConvTranspose, likewise

Not applied if the layer's output has another use or is an output of the graph, if the layer has an activation or a
residual branch, if the weights or statistics are not constants, or if a result would not be finite.

Source: B. Jacob et al., "Quantization and training of neural networks for efficient integer-arithmetic-only inference",
CVPR 2018, equation 14.
"""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.passes.affine import fold_into_layer
from mlhood.compiler.passes.rewriting import sweep


def fold_batch_normalization(graph: Graph) -> bool:
    """Fold batch normalizations into the preceding layers; return whether anything changed."""
    return sweep(graph, fold_into_layer, BatchNormalization)
