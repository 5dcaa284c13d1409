"""Normalisation of groups of channels."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import common_element, require, require_unquantized, single
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.normalization import Normalization
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.reduction import mean


@dataclass(frozen=True)
class GroupNormalization(Normalization):
    """y = (x - mean) / sqrt(var + epsilon) scale + bias: x [N, C, ...], scale and bias [C] (arXiv 1803.08494).

    Mean and variance are those of a sample's group of channels, in float32 at least.

    Attributes:
        groups: Number of groups of C / groups channels each.
        epsilon: What is added to the variance.
    """

    groups: int
    epsilon: float = single(1e-5)

    arity = (3, 3)
    onnx = ("GroupNormalization",)

    def infer(self, x: TensorType, scale: TensorType, bias: TensorType) -> TensorType:
        require_unquantized(x, scale, bias)
        require(x.is_float, "the operator requires floating-point elements", got=common_element(x, scale, bias))
        require(x.rank >= 2, "the input needs a batch and a channel axis", got=list(x.shape))
        channels = x.shape[1]
        divides = self.groups >= 1 and (isinstance(channels, str) or channels % self.groups == 0)
        require(divides, "the channels cannot be split into groups", expected=f"{self.groups} groups", got=channels)
        for vector in (scale, bias):
            fits = vector.rank == 1 and (vector.shape[0] == channels or isinstance(channels, str))
            require(fits, "there must be one element for each channel", expected=[channels], got=list(vector.shape))
        return x

    def evaluate(self, x: np.ndarray, scale: np.ndarray, bias: np.ndarray) -> np.ndarray:
        wide = x if x.dtype == np.float64 else x.astype(np.float32)
        rows = wide.reshape(x.shape[0], self.groups, x.size // max(x.shape[0] * self.groups, 1))
        centred = rows - mean(rows, (2,))
        normal = centred / np.sqrt(mean(centred**2, (2,)) + np.asarray(self.epsilon, wide.dtype))
        vector = (-1, *(1,) * (x.ndim - 2))
        return np.asarray(normal.reshape(x.shape) * scale.reshape(vector) + bias.reshape(vector), x.dtype)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        """Export an InstanceNormalization of the groups: the older opsets have a scale for each group instead."""
        x, scale, bias = inputs
        type = writer.node.outputs[0].type
        rows = writer.emit("Reshape", x, writer.integers((0, self.groups, -1)))
        ones, zeros = (writer.constant(np.full(self.groups, fill, type.dtype)) for fill in (1, 0))
        normal = writer.emit("InstanceNormalization", rows, ones, zeros, epsilon=self.epsilon)
        shape = writer.integers((-1, *(1,) * (type.rank - 2)))
        normal = writer.emit("Reshape", normal, writer.emit("Shape", x))
        scaled = writer.emit("Mul", normal, writer.emit("Reshape", scale, shape))
        return writer.emit("Add", scaled, writer.emit("Reshape", bias, shape), name=name)

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(source.attribute("num_groups", 0), source.attribute("epsilon", 1e-5)), *source.inputs)


OPERATORS = (GroupNormalization,)
