"""Pictures of P3: a convolution and its layout, the ladder of the matrix product, and what was measured."""

from __future__ import annotations

from mlhood.kernels.pictures_conv import im2col_layout, window
from mlhood.kernels.pictures_gemm import blocking, loop_orders, packing, register_tile
from mlhood.kernels.pictures_results import amdahl, im2col_memory, inventory, ladder, peers, ratios

__all__ = [
    "amdahl",
    "blocking",
    "im2col_layout",
    "im2col_memory",
    "inventory",
    "ladder",
    "loop_orders",
    "packing",
    "peers",
    "ratios",
    "register_tile",
    "window",
]
