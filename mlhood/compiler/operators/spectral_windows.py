"""Import of the windows of spectra: they depend on their length only, and become constants."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.cast import element_of
from mlhood.compiler.operators.onnx_node import OnnxNode

# The factors of cos(0), cos(t) and cos(2 t), t being 2 pi n / length.
_COSINES = {
    "HannWindow": (0.5, -0.5, 0.0),
    "HammingWindow": (25 / 46, -21 / 46, 0.0),
    "BlackmanWindow": (0.42, -0.5, 0.08),
}


def import_window(source: OnnxNode) -> Value:
    """Import a window whose length is known; a symmetric one ends with the element that it begins with."""
    source.refuse_input(0)
    sizes = source.integers(0)
    require(len(sizes) == 1, "the length of a window must be one number", got=len(sizes))
    size, element = sizes[0], element_of(source.attribute("output_datatype", 1))
    require(size >= 0, "the length of a window cannot be negative", got=size)
    source.spend(size)
    period = size if source.attribute("periodic", 1) else size - 1
    require(size == 0 or period > 0, "a symmetric window needs at least two elements", got=size)
    angle = 2 * np.pi * np.arange(size) / max(period, 1)
    window = sum(factor * np.cos(k * angle) for k, factor in enumerate(_COSINES[source.op_type]))
    return source.constant(np.asarray(window).astype(element))


RULES = dict.fromkeys(_COSINES, import_window)
