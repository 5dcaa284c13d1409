"""Small versions of well-known architectures with random weights, to try exporters and compilers on.

In: a name. Out: an `Architecture`: a torch module with seeded weights, and random inputs for any batch size.
"""

from __future__ import annotations

from mlhood.errors import ModelError, nearest
from tests.tools.compiler.architectures import (
    attention,
    classic,
    dense_prediction,
    generative,
    mobile,
    sequence,
    structures,
)
from tests.tools.compiler.architectures.architecture import Architecture, Input

__all__ = ["ARCHITECTURES", "Architecture", "Input", "architecture"]

_FAMILIES = (classic, mobile, dense_prediction, generative, sequence, structures, attention)

ARCHITECTURES: dict[str, Architecture] = {entry.name: entry for family in _FAMILIES for entry in family.ARCHITECTURES}


def architecture(name: str) -> Architecture:
    """Return an architecture of the zoo.

    Raises:
        ModelError: There is none of this name.
    """
    if name not in ARCHITECTURES:
        raise ModelError(
            "unknown architecture", expected=", ".join(ARCHITECTURES), got=repr(name), todo=nearest(name, ARCHITECTURES)
        )
    return ARCHITECTURES[name]
