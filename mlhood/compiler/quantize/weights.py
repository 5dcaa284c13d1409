"""Quantisation of compile-time constants: weights and biases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np

from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.quantize.recipe import Recipe
from mlhood.compiler.quantize.schema import channel_parameters, quantize_array, tensor_parameters

_INT32 = np.iinfo(np.int32)


def weight_parameters(weight: np.ndarray, bias: np.ndarray | None, x_scale: float, recipe: Recipe) -> Quantization:
    """Return the parameters of a weight such that the bias, int32 in units of scale_x scale_w, does not overflow.

    The scale of the weight's range is increased if the bias would leave too little room in the accumulator for the sum
    of products: the error of weights that are so much smaller than their bias is negligible.

    Args:
        weight: float32 [F, ...], output channels first.
        bias: float32 [F], or None.
        x_scale: Scale of the layer's input.
        recipe: Determines the schema, the element type, and whether each channel has its own scale.
    """
    choose = channel_parameters if recipe.per_channel else tensor_parameters
    parameters = choose(weight, recipe.weight_element, recipe.weight_schema)
    if bias is None or not bias.size:
        return parameters
    minimum = np.abs(bias.astype(np.float64)) / (x_scale * _max_bias(weight, recipe))
    minimum = minimum if recipe.per_channel else minimum.max(keepdims=True)
    too_small = np.array(parameters.scale) < minimum
    if not too_small.any():
        return parameters
    increased = np.nextafter(minimum.astype(np.float32), np.float32(np.inf)).astype(np.float64)
    if recipe.schema == "power_of_two":
        increased = np.exp2(np.ceil(np.log2(minimum)))
    scale = np.where(too_small, increased, parameters.scale)
    return replace(parameters, scale=tuple(scale.tolist()))


def _max_bias(weight: np.ndarray, recipe: Recipe) -> float:
    """Return the largest bias with which no sum of products overflows the accumulator."""
    if recipe.element == "int16":
        return float(_INT32.max)  # the accumulator is int64, only the bias is int32
    products = weight[0].size * 255 * 255
    return float(max(_INT32.max - products, _INT32.max // 2))


def bias_parameters(weight: Quantization, x_scale: float) -> Quantization:
    """Return the parameters of a bias: the scale of the products that it is added to, per channel as the weight's."""
    return Quantization(tuple(scale * x_scale for scale in weight.scale), (0,) * len(weight.scale), weight.axis)


def quantize_bias(bias: np.ndarray, quantization: Quantization) -> np.ndarray:
    """Return the bias as int32."""
    return quantize_array(bias, quantization, "int32")
