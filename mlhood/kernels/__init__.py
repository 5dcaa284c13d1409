"""Matrix products and convolutions as ladders: from the definition, rung by rung, to a kernel made for this machine.

`GEMM` and `CONV2D` map the rungs' names to functions with the same arguments.
"""

from __future__ import annotations

from importlib import import_module
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from mlhood.kernels.conv import CONV2D, RELU
    from mlhood.kernels.gemm import GEMM
    from mlhood.kernels.int8 import int8_product
    from mlhood.kernels.layout import to_blocked, to_plain
    from mlhood.kernels.parallel import threads, use_threads

__all__ = ["CONV2D", "GEMM", "RELU", "int8_product", "threads", "to_blocked", "to_plain", "use_threads"]

_HOMES = {
    "CONV2D": "conv",
    "GEMM": "gemm",
    "RELU": "conv",
    "int8_product": "int8",
    "threads": "parallel",
    "to_blocked": "layout",
    "to_plain": "layout",
    "use_threads": "parallel",
}


def __getattr__(name: str) -> Any:
    """Load what is asked for: the command line must not wait for NumPy, nor a bench find it loaded too early."""
    if name not in _HOMES:
        raise AttributeError(f"module 'mlhood.kernels' has no attribute {name!r}")
    return getattr(import_module(f"mlhood.kernels.{_HOMES[name]}"), name)
