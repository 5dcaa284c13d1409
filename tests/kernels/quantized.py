"""What the tests of the kernels of bytes share: the compiler's operators as reference, and guarded memory."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.backends.cpu.integer_selection import rescaling_of
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.rescale import bit_width, max_magnitude, parameters_of
from mlhood.kernels import parallel
from mlhood.kernels.native import NativeCall

__all__ = ["extreme_bytes", "product_scale", "quantization", "rescaling_of", "run_guarded", "term"]

GUARD, CANARY = 64, 0xA5


def run_guarded(call: NativeCall, threads: int, inputs: dict[str, np.ndarray], out: np.ndarray) -> np.ndarray:
    """Run a call whose result and workspaces lie between canaries; return the result, like `out`."""
    guarded = {"out": out.nbytes, **call.workspace}
    memory = {name: np.full(size + 2 * GUARD, CANARY, np.uint8) for name, size in guarded.items()}
    words = call.words.copy()
    for name, array in inputs.items():
        assert array.flags.c_contiguous
        words[call.operands[name]] = array.ctypes.data
    for name, buffer in memory.items():
        words[call.operands[name]] = buffer.ctypes.data + GUARD
    parallel.launch(call.kernel, words, (call, inputs, memory), threads)
    for buffer in memory.values():
        assert (buffer[:GUARD] == CANARY).all()
        assert (buffer[-GUARD:] == CANARY).all()
    return memory["out"][GUARD:-GUARD].view(out.dtype).reshape(out.shape).copy()


def product_scale(x: TensorType, w: TensorType) -> np.ndarray:
    """Return the scale of the products of x and w, by filter."""
    return np.array(parameters_of(w).scale) * parameters_of(x).scale[0]


def term(type: TensorType) -> tuple[np.ndarray, int]:
    """Return the scale and the bits of a tensor with one scale."""
    return np.array(parameters_of(type).scale[0]), bit_width(max_magnitude(type))


def quantization(rng: np.random.Generator, element: str, schema: str, scale: float) -> Quantization:
    """Return parameters of a schema near a scale."""
    limits = np.iinfo(element)
    offsets = {
        "asymmetric": int(rng.integers(limits.min, limits.max + 1)),
        "symmetric_unsigned": int(limits.min),
        "symmetric": 0 if element == "int8" else 128,
    }
    offsets["power_of_two"] = offsets["symmetric"]
    number = float(np.float32(scale * rng.uniform(0.7, 1.4)))
    if schema == "power_of_two":
        number = float(2.0 ** np.round(np.log2(number)))
    return Quantization((number,), (offsets[schema],))


def extreme_bytes(rng: np.random.Generator, shape: tuple[int, ...], element: str, kind: str) -> np.ndarray:
    """Return bytes: `random`, all `least` or all `most`, or either at `random_extremes`."""
    limits = np.iinfo(element)
    if kind == "random":
        return rng.integers(limits.min, limits.max + 1, shape).astype(element)
    if kind == "random_extremes":
        return rng.choice([limits.min, limits.max], shape).astype(element)
    return np.full(shape, limits.min if kind == "least" else limits.max, element)
