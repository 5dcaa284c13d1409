"""Matrix products and convolutions as ladders, from the definition step by step to a kernel generated for this machine.

`GEMM` and `CONV2D` map names to functions with the same arguments: NumPy arrays in, a NumPy array out. The generators
of native code are in `codegen`.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.kernels.conv import CONV2D, RELU
    from mlhood.kernels.gemm import GEMM, int8_product
    from mlhood.kernels.geometry import to_blocked, to_plain
    from mlhood.kernels.parallel import threads, use_threads

__all__ = ["CONV2D", "GEMM", "RELU", "int8_product", "threads", "to_blocked", "to_plain", "use_threads"]

_MODULES = {"CONV2D": "conv", "GEMM": "gemm", "RELU": "conv", "int8_product": "gemm"}
_MODULES |= {"threads": "parallel", "to_blocked": "geometry", "to_plain": "geometry", "use_threads": "parallel"}


def __getattr__(name: str) -> Any:
    """Import lazily: the command line must not wait for NumPy, and a bench sets variables that NumPy reads first."""
    if name not in _MODULES:
        raise AttributeError(f"module 'mlhood.kernels' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.kernels.{_MODULES[name]}"), name)
