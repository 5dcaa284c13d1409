"""A program of one layer alone, and the convolutions of the course."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from mlhood.compiler.backends.nmp.codegen.emitter import Emitter, PackedWeights
from mlhood.compiler.backends.nmp.codegen.layer import DramView, LayerData, LayerEmitter
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing, check_fits
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.program import DramTensor, NmpLayer, NmpProgram
from mlhood.compiler.backends.nmp.stages import NmpStage, NmpWork


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
