"""The memory layouts of convolutions' arrays."""

from __future__ import annotations

from dataclasses import dataclass

from mlhood.jaxlab.xla.hlo import Computation, Instruction, Module

_LETTERS = {"b": "N", "f": "C", "o": "O", "i": "I", "0": "H", "1": "W", "2": "D"}


@dataclass(frozen=True)
class ConvolutionLayout:
    """The layouts of a convolution's arrays, the fastest-varying (contiguous) dimension last.

    Args:
        name: The convolution's name.
        x: Of the input: NCHW, NHWC and so on.
        w: Of the weights: OIHW, HWIO and so on.
        y: Of the output.
    """

    name: str
    x: str
    w: str
    y: str


def convolutions(module: Module) -> list[ConvolutionLayout]:
    """Return the layouts of all convolutions, in the order of execution."""
    return [
        _layout(computation, instruction)
        for computation, instruction in module.walk()
        if instruction.opcode == "convolution" and instruction.attribute("dim_labels")
    ]


def _layout(computation: Computation, convolution: Instruction) -> ConvolutionLayout:
    labels = (convolution.attribute("dim_labels") or "").replace("->", "_").split("_")
    operands = [computation.instructions[name].arrays[0] for name in convolution.operands[:2]]
    orders = [
        "".join(_LETTERS.get(label[dim], "?") for dim in reversed(array.layout))
        for label, array in zip(labels, [*operands, convolution.arrays[0]], strict=True)
    ]
    return ConvolutionLayout(convolution.name, *orders)
