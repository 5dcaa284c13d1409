"""Integers with other quantisation parameters in their type, or with none: nothing is computed."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import require
from mlhood.compiler.hir.types import Quantization, TensorType
from mlhood.compiler.operators.base import Elementwise
from mlhood.compiler.operators.onnx_writer import OnnxWriter


def require_valid(type: TensorType) -> TensorType:
    """Return a quantised type after checking it.

    Raises:
        CompilerError: A scale is not positive, an offset is out of range, or there are too few or too many.
    """
    faults = type.violations()
    require(not faults, "invalid quantisation parameters", got="; ".join(faults))
    return type


class Conversion(Elementwise):
    """Base: conversion of reals to quantised integers or back."""

    converts = True
    family = "quantization"


@dataclass(frozen=True)
class Reinterpret(Conversion):
    """The same integers, with quantisation parameters in the type; without any, if `quantization` is None."""

    quantization: Quantization | None

    def infer(self, x: TensorType) -> TensorType:
        valid = self.quantization is None or x.quantization in (None, self.quantization)
        require(valid, "the input has other quantisation parameters", got=x.quantization)
        return require_valid(TensorType(x.element, x.shape, self.quantization))

    def evaluate(self, x: np.ndarray) -> np.ndarray:
        return x

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        return writer.emit("Identity", *inputs, name=name)
