"""Matrix products and convolutions as ladders, from the definition step by step to a kernel generated for this machine.

`GEMM` and `CONV2D` map names to functions with the same arguments: NumPy arrays in, a NumPy array out. The generators
of native code are in `codegen`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.kernels.conv import CONV2D
    from mlhood.kernels.gemm import GEMM

__all__ = ["CONV2D", "GEMM"]

_MODULES = {"CONV2D": "conv", "GEMM": "gemm"}


def __getattr__(name: str) -> Any:
    """Import lazily: the command line must not wait for NumPy, and a bench sets variables that NumPy reads first."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mlhood.kernels' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.kernels.{_MODULES[name]}"), name)
