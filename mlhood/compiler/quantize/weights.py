"""Quantising what is known when compiling: weights and biases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.quantize.recipe import Recipe
from mlhood.compiler.quantize.schema import channel_parameters, quantize_array, tensor_parameters

_INT32 = np.iinfo(np.int32)


def weight_parameters(weight: np.ndarray, bias: np.ndarray | None, x_scale: float, recipe: Recipe) -> Quantization:
    """Return the parameters of a weight such that the bias, which is int32 in units of scale_x scale_w, fits.

    The scale that the weight's range asks for is enlarged where the bias would not leave room for the sum of products:
    weights so much smaller than their bias hardly matter beside it.

    Args:
        weight: float32 [F, ...], the output channels first.
        bias: float32 [F], or none.
        x_scale: Scale of the layer's input.
        recipe: Schema, element type, and whether each channel has its own scale.
    """
    of_range = channel_parameters if recipe.per_channel else tensor_parameters
    found = of_range(weight, recipe.weight_element, recipe.weight_schema)
    if bias is None or not bias.size:
        return found
    wanted = np.abs(bias.astype(np.float64)) / (x_scale * _room(weight, recipe))
    least = wanted if recipe.per_channel else wanted.max(keepdims=True)
    small = np.array(found.scale) < least
    if not small.any():
        return found
    enlarged = np.nextafter(least.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    if recipe.schema == "power_of_two":
        enlarged = np.exp2(np.ceil(np.log2(least)))
    scale = np.where(small, enlarged, found.scale)
    return replace(found, scale=tuple(scale.tolist()))


def _room(weight: np.ndarray, recipe: Recipe) -> float:
    """Return the largest bias beside which no sum of products leaves the accumulator."""
    if recipe.element == "int16":
        return float(_INT32.max)  # only the bias itself must fit, since the accumulator is int64
    products = weight[0].size * 255 * 255
    return float(max(_INT32.max - products, _INT32.max // 2))


def bias_parameters(of_weight: Quantization, x_scale: float) -> Quantization:
    """Return the parameters of a bias: in units of the products that it is added to."""
    return Quantization(
        tuple(scale * x_scale for scale in of_weight.scale), (0,) * len(of_weight.scale), of_weight.axis
    )


def quantized_bias(bias: np.ndarray, quantization: Quantization) -> np.ndarray:
    """Return the bias as int32; parameters along its axis are those along the weight's output channels."""
    return quantize_array(bias, quantization, "int32")
