"""A program of one layer alone, and the convolutions of the course: whether a slicing fits, and their serial time.

Serial time. On a machine of one tilelet, without double buffering, a step loads what it lacks, waits, computes its
slice and starts to store it. With I = issue_cycles, B = burst_cycles, L = latency_cycles, a program of n steps takes

    n (2 I + L) + B (bursts loaded and stored) + (cycles of all computations) + I + L + barrier_cycles

cycles, if channels are not sliced: the waits for the loads of a step include the store of the step before, and only the
last store is waited for by the barrier. A convolution of a slice takes channels x window x the fewer of pixels x
ceil(filters / lanes) and filters x ceil(pixels / lanes) cycles.

With P slices of pixels, F slices of filters, and again without slices of channels, both more than 1, the order decides
how often a slice is loaded; each output slice is stored once:

    order    input slices    weight slices
    output   P               P F
    weight   P F             F
    input    P               P F
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.compiler.backends.nmp.codegen.emitter import Emitter, PackedWeights
from mlhood.compiler.backends.nmp.codegen.layer import DramView, LayerData, LayerEmitter
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing, check_fits, misfits
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.program import DramTensor, NmpLayer, NmpProgram
from mlhood.compiler.backends.nmp.stages import NmpStage, NmpWindow, NmpWork
from mlhood.errors import CompilerError


def convolution(
    channels: int, height: int, width: int, filters: int, *, kernel: int = 3, stride: int = 1, pad: int = 0
) -> NmpStage:
    """Return a convolution of int8 with a square window, whose sums are shifted right by 8 bits.

    Raises:
        CompilerError: A size is not positive, or the window is larger than the padded input.
    """
    sizes = (channels, height, width, filters, kernel, stride)
    if any(type(size) is not int or size < 1 for size in sizes) or not 0 <= pad < kernel:
        raise CompilerError("invalid convolution", expected="positive sizes, and pads below the kernel's", got=sizes)
    out_height, out_width = ((length + 2 * pad - kernel) // stride + 1 for length in (height, width))
    if min(out_height, out_width) < 1:
        raise CompilerError("the window is larger than the padded input", expected=f">= {kernel}", got=(height, width))
    window = NmpWindow((kernel, kernel), (stride, stride), (1, 1), (pad, pad))
    return NmpStage("conv", 1, channels, height, width, filters, out_height, out_width, window, 8, -128, 127)


def first_misfit(layer: NmpStage, slicing: Slicing, machine: Machine) -> tuple[str, int, int] | None:
    """Return the first operand of a slicing that does not fit: its name, its bytes, and those it may have, or None."""
    return next(iter(misfits((layer,), slicing, machine)), None)


def convolution_program(
    layer: NmpStage,
    slicing: Slicing,
    machine: Machine,
    weights: np.ndarray | None = None,
    bias: np.ndarray | None = None,
) -> NmpProgram:
    """Return the program of a convolution: its input is "x" [channels, height, width], its output "y".

    Args:
        layer: See `convolution`.
        slicing: How it is cut; `double_buffered=False` gives the serial program of this module's formulas.
        machine: The machine.
        weights: int8 [filters, channels, kernel, kernel]; zeros if omitted.
        bias: int32 [filters]; zeros if omitted.

    Raises:
        CompilerError: The slicing does not fit the machine, or an array has another shape or type.
    """
    kernel = (layer.filters, layer.channels, *layer.window.kernel)
    weights = np.zeros(kernel, np.int8) if weights is None else np.asarray(weights)
    bias = np.zeros(layer.filters, np.int32) if bias is None else np.asarray(bias)
    for name, array, expected in (("weights", weights, ("int8", kernel)), ("bias", bias, ("int32", (layer.filters,)))):
        if (got := (array.dtype.name, array.shape)) != expected:
            raise CompilerError(f"invalid {name}", expected=f"{expected[0]} {expected[1]}", got=f"{got[0]} {got[1]}")
    return layer_program((layer,), slicing, machine, [NmpWork(layer, weights, bias)])


# -- the program of a layer


def layer_program(
    stages: Sequence[NmpStage], slicing: Slicing, machine: Machine, works: Sequence[NmpWork] | None = None
) -> NmpProgram:
    """Return the program of one layer, for one image.

    Its tensors are "x", "y", "weights", and "z" for the second operand of a sum; a second one is "z1", and so on.

    Args:
        stages: The layer.
        slicing: How it is cut.
        machine: The machine.
        works: The stages with their arrays; without them, weights are zeros, which suffices to count cycles.

    Raises:
        CompilerError: The slicing does not fit the machine.
    """
    check_fits(stages, slicing, machine)
    first, last, burst = stages[0], stages[-1], machine.dram.burst_bytes
    packed = PackedWeights(stages, slicing, burst)
    tensors: dict[str, DramTensor] = {}
    end = 0

    def add(name: str, kind: str, element: str, shape: tuple[int, ...], data: np.ndarray | None = None) -> int:
        nonlocal end
        tensor = tensors[name] = DramTensor(name, kind, element, shape, end, data)
        end = ceil_div(end + tensor.bytes, burst) * burst
        return tensor.address

    element = f"int{8 * first.element}"
    x = DramView(add("x", "input", element, view_shape(first, False)), first, False)
    y = DramView(add("y", "output", element, view_shape(last, True)), last, True)
    operands = {}
    for n, stage in enumerate(stages):
        if stage.kind == "add":
            name = f"z{len(operands) or ''}"
            operands[n] = DramView(add(name, "input", element, view_shape(stage, True)), stage, True)
    memory = np.zeros(packed.bytes, np.uint8) if works is None else packed.pack(works)
    weights = add("weights", "constant", "uint8", memory.shape, memory) if packed.bytes else 0
    emitter = Emitter(machine)
    layer = LayerEmitter(emitter, stages, slicing, packed, LayerData(x, y, operands, weights, end))
    if layer.partial_bytes:
        add("accumulators", "scratch", "int8", (layer.partial_bytes,))
    layer.emit()
    emitter.barrier()
    instructions = tuple(emitter.instructions)
    name = "+".join(stage.kind for stage in stages)
    return NmpProgram(name, machine, tensors, instructions, (NmpLayer(name, 0, len(instructions), str(slicing)),))


def view_shape(stage: NmpStage, is_output: bool) -> tuple[int, ...]:
    """Return the shape of a stage's input or output as an image, or as the rows of a dense layer."""
    if is_output:
        image = (stage.filters, stage.out_height, stage.out_width)
    else:
        image = (stage.channels, stage.height, stage.width)
    return (image[1], image[0]) if stage.kind == "dense" else image
