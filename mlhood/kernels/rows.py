"""Functions along the last axis of contiguous float32 arrays as native calls: softmax, normalisation, reductions.

Arrays are [rows, length], where rows is the product of all axes but the last. Any number of threads gets the same bits.
"""

from __future__ import annotations

from mlhood.errors import KernelError
from mlhood.kernels.codegen import jit, rows_kernel
from mlhood.kernels.codegen.rows_kernel import FIELDS, NORM_FIELDS, REDUCTIONS
from mlhood.kernels.codegen.target import Target, host
from mlhood.kernels.loop_nest import TASK
from mlhood.kernels.native import NativeCall, native_call

__all__ = ["REDUCTIONS", "layer_norm", "reduce", "softmax"]


def softmax(rows: int, length: int, *, log: bool = False, target: Target | None = None) -> NativeCall:
    """Return a call that writes the softmax of each row of "x" to "out", both [rows, length].

    They may be the same memory. A row whose maximum is infinite becomes NaN, as with NumPy.

    Args:
        rows, length: The shape.
        log: Whether to write the logarithm of the softmax.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If a size is negative.
    """
    kernel = jit.load(rows_kernel.build_softmax, target or host(), bool(log))
    return native_call(kernel, FIELDS, _sizes(rows, length), ("x", "out"), name="log_softmax" if log else "softmax")


def layer_norm(
    rows: int,
    length: int,
    epsilon: float = 1e-5,
    *,
    scale: bool = True,
    bias: bool = True,
    target: Target | None = None,
) -> NativeCall:
    """Return a call that normalises each row of "x" [rows, length] to mean 0 and variance 1 (arXiv 1607.06450).

    "out" [rows, length] may be the same memory.

    Args:
        rows, length: The shape.
        epsilon: Is added to the variance.
        scale: Whether the result is multiplied by "scale" [length].
        bias: Whether "bias" [length] is added to it.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If a size is negative.
    """
    kernel = jit.load(rows_kernel.build_layer_norm, target or host(), bool(scale), bool(bias))
    operands = ("x", "out", *(("scale",) if scale else ()), *(("bias",) if bias else ()))
    values = _sizes(rows, length) | {"scale": 0, "bias": 0}
    return native_call(kernel, NORM_FIELDS, values, operands, floats={"epsilon": epsilon}, name="layer_norm")


def reduce(name: str, rows: int, length: int, target: Target | None = None) -> NativeCall:
    """Return a call that reduces each row of "x" [rows, length] to an element of "out" [rows].

    Args:
        name: One of `REDUCTIONS`: an operator of ONNX without "Reduce". NaN propagates; the reduction of nothing is 0,
            1 for Prod, NaN for Mean, and the infinity that changes nothing for Max and Min.
        rows, length: The shape.
        target: The processor; this machine's by default.

    Raises:
        KernelError: If there is no such reduction, or a size is negative.
    """
    if name not in REDUCTIONS:
        raise KernelError("unknown reduction", expected=", ".join(REDUCTIONS), got=repr(name))
    kernel = jit.load(rows_kernel.build_reduction, target or host(), name)
    return native_call(kernel, FIELDS, _sizes(rows, length), ("x", "out"), name=f"reduce_{name.lower()}")


def _sizes(rows: int, length: int) -> dict[str, int]:
    if rows < 0 or length < 0:
        raise KernelError("invalid size", expected="rows and a length, not negative", got=(rows, length))
    block = max(1, TASK // max(length, 1))
    return {"tasks": -(-rows // block), "rows": rows, "row_block": block, "length": length}
