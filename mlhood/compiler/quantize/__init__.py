"""Post-training quantisation: profile a float graph, rewrite it to integers, and measure the loss.

statistics = profile(graph, [{"image": images}])
quantized = quantize(graph, statistics, Recipe("symmetric", per_channel=True))
layer_sqnr(graph, quantized, {"image": images})

Only the weights: quantize_weights(graph, WeightFormat(4, block=32)), in place
"""

from mlhood.compiler.quantize.profile import Distribution, Profile, profile
from mlhood.compiler.quantize.quantize import quantize
from mlhood.compiler.quantize.report import kept_in_float, layer_sqnr, output_sqnr, sqnr, summary
from mlhood.compiler.quantize.schema import SCHEMAS, Recipe, choose_parameters
from mlhood.compiler.quantize.weights import WeightFormat, quantize_weights

__all__ = [
    "SCHEMAS",
    "Distribution",
    "Profile",
    "Recipe",
    "WeightFormat",
    "choose_parameters",
    "kept_in_float",
    "layer_sqnr",
    "output_sqnr",
    "profile",
    "quantize",
    "quantize_weights",
    "sqnr",
    "summary",
]
