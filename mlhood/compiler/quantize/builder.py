"""The quantised graph while it is built: each value as reals, as integers, or as both where both are read."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale, parameters_of
from mlhood.compiler.quantize.calibrate import calibrate_range
from mlhood.compiler.quantize.profile import Profile
from mlhood.compiler.quantize.recipe import Recipe
from mlhood.compiler.quantize.schema import choose_parameters, quantize_array, tensor_parameters


class Builder:
    """Builds the quantised graph beside the float one.

    Args:
        source: The float graph; its names are kept.
        profile: What its values hold.
        recipe: How to quantise.
    """

    def __init__(self, source: Graph, profile: Profile, recipe: Recipe) -> None:
        self.source = source
        self.profile = profile
        self.recipe = recipe
        self.graph = Graph(source.name)
        self._names = {value.name for value in source.values()} | source.nodes.keys()
        self._real: dict[Value, Value] = {}
        self._stored: dict[Value, Value] = {}
        self._parameters: dict[Value, Quantization] = {}
        self._constants: dict[tuple[str, str, Quantization | None], Value] = {}
        for placeholder in source.placeholders.values():
            self._real[placeholder] = self.graph.placeholder(placeholder.name, placeholder.type)

    def knows(self, value: Value) -> bool:
        """Tell whether a value can be quantised: it is float32, and profiled or constant."""
        profiled = isinstance(value, Constant) or value.name in self.profile.distributions
        return value.type.element == "float32" and profiled

    def is_stored(self, value: Value) -> bool:
        """Tell whether a value is there as integers, without one more Quantize."""
        return value in self._stored

    def parameters(self, value: Value) -> Quantization:
        """Return the parameters that the profile and the recipe give a value of the float graph."""
        if value not in self._parameters:
            recipe, limits = self.recipe, np.iinfo(self.recipe.element)
            low, high = calibrate_range(
                self.profile[value.name],
                recipe.calibration,
                percentile=recipe.percentile,
                levels=int(limits.max) - int(limits.min),
            )
            self._parameters[value] = self.of_range(low * recipe.margin, high * recipe.margin)
        return self._parameters[value]

    def of_range(self, low: float, high: float) -> Quantization:
        """Return the parameters of activations in a range."""
        scale, offset = choose_parameters(low, high, self.recipe.element, self.recipe.schema)
        return Quantization((scale,), (offset,))

    def real(self, value: Value) -> Value:
        """Return a value of the float graph as reals (or as what it is, if it never was float)."""
        if value in self._real:
            return self._real[value]
        if isinstance(value, Constant):
            made = self._constant(value.name, value.data, value.type.quantization)
        else:
            made = self.insert(Dequantize(), self._stored[value], name=f"{value.name}.dequantized")
        self._real[value] = made
        return made

    def stored(self, value: Value) -> Value:
        """Return a value of the float graph as integers."""
        if value in self._stored:
            return self._stored[value]
        if isinstance(value, Constant):
            element = self.recipe.element
            parameters = tensor_parameters(value.data, element, self.recipe.schema)
            made = self.constant(value, quantize_array(value.data, parameters, element), parameters)
        else:
            quantize = Quantize(self.recipe.element, self.parameters(value))
            made = self.insert(quantize, self._real[value], name=f"{value.name}.quantized")
        self._stored[value] = made
        return made

    def rescaled(self, value: Value, quantization: Quantization) -> Value:
        """Return a value as integers with these parameters."""
        stored = self.stored(value)
        if parameters_of(stored.type) == quantization:
            return stored
        return self.insert(Rescale(quantization), stored, name=f"{value.name}.rescaled")

    def constant(self, value: Value, data: np.ndarray, quantization: Quantization) -> Value:
        """Return a constant of the float graph with other content, under its name where that is free."""
        return self._constant(value.name, data, quantization)

    def _constant(self, name: str, data: np.ndarray, quantization: Quantization | None) -> Value:
        key = (name, data.dtype.name, quantization)
        if key not in self._constants:
            taken = name in self.graph.constants  # under other parameters
            self._constants[key] = self.graph.constant(self._free(name) if taken else name, data, quantization)
        return self._constants[key]

    def insert(self, operator: Operator, *inputs: Value | None, name: str, node: str | None = None) -> Value:
        """Add a node that makes a value which the float graph does not have, and return that value.

        Args:
            operator: What the node does.
            inputs: Values of the quantised graph.
            name: The value's name; one that the float graph does not use is made of it.
            node: The node's name; the value's if left out.
        """
        name = self._free(name)
        return self.graph.add(operator, *inputs, name=node or name, outputs=[name]).outputs[0]

    def put(self, value: Value, operator: Operator, *inputs: Value | None, node: str) -> None:
        """Add a node that makes a value of the float graph, as integers or as reals, under the value's name."""
        made = self.graph.add(operator, *inputs, name=node, outputs=[value.name]).outputs[0]
        (self._real if made.type.quantization is None else self._stored)[value] = made

    def keep(self, node: Node) -> None:
        """Take a node over as it is, on reals."""
        read = [None if value is None else self.real(value) for value in node.inputs]
        made = self.graph.add(node.operator, *read, name=node.name, outputs=[value.name for value in node.outputs])
        self._real |= dict(zip(node.outputs, made.outputs, strict=True))

    def _free(self, name: str) -> str:
        while name in self._names:
            name += "_"
        return name
