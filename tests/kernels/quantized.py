"""What the tests of the kernels of bytes share: the compiler's operators as reference, and guarded memory."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.fixed_point import fixed_points
from mlhood.compiler.operators.rescale import bit_width, max_magnitude, parameters_of, stored_range
from mlhood.kernels import parallel
from mlhood.kernels.native import NativeCall
from mlhood.kernels.requantize import Rescaling, Shifts

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


def rescaling_of(
    terms: Sequence[tuple[np.ndarray, int]], y: TensorType, activation: tuple = (), z: TensorType | None = None
) -> Rescaling:
    """Return the rescaling of (scale, bits) of each term to y's type, as the compiler's operators compute it."""
    of_y = parameters_of(y)

    def shifts(factor: float) -> Shifts:
        scales = [np.asarray(scale * factor / of_y.scale[0], np.float64) for scale, _ in terms]
        return Shifts(*fixed_points(scales, [bits for _, bits in terms]))

    low, high = stored_range(y, activation)
    leaky = bool(activation) and activation[0] == "LeakyRelu"
    z_offset = 0 if z is None else parameters_of(z).offset[0]
    negative = shifts(float(activation[1])) if leaky else None
    return Rescaling(y.element, of_y.offset[0], shifts(1.0), negative=negative, low=low, high=high, z_offset=z_offset)


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
