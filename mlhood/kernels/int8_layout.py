"""Conversions of bytes between the plain and the blocked layout, prepared once."""

from __future__ import annotations

import math
from collections.abc import Sequence

from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.int8_layout_kernel import FIELDS, build
from mlhood.kernels.codegen.requantize import BLOCK
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.native import NativeCall, native_call


def prepare_layout(shape: Sequence[int], *, to_blocked: bool, target: Target | None = None) -> NativeCall:
    """Prepare the conversion of bytes [N, C, spatial...] to [N, ceil(C / 16), spatial..., 16], or back.

    Operands: `x` and `out`. Lanes of a blocked result beyond the channels are undefined.

    Args:
        shape: [N, C, spatial...].
        to_blocked: Direction.
        target: The processor; the host by default.
    """
    images, channels, *spatial = shape
    blocks = -(-channels // BLOCK)
    values = {"tasks": images * blocks, "blocks": blocks, "channels": channels, "pixels": math.prod(spatial)}
    name = f"int8 to {'blocked' if to_blocked else 'plain'}"
    return native_call(jit.load(build, target or host(), to_blocked), FIELDS, values, ("x", "out"), name=name)
