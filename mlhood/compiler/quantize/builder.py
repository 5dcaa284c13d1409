"""Construction of the quantised graph: each value of the float graph in float, as integers, or as both if needed."""

from __future__ import annotations

import numpy as np

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import Operator
from mlhood.compiler.hir.types import Quantization
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.quantized import Dequantize, Quantize
from mlhood.compiler.operators.rescale import Rescale, parameters_of
from mlhood.compiler.quantize.profile import Distribution, Profile, pre_activation_name
from mlhood.compiler.quantize.schema import Recipe, choose_parameters, quantize_array, tensor_parameters


class Builder:
    """Builds the quantised graph from the float one.

    Args:
        source: The float graph; its names are kept.
        profile: The distributions of its values.
        recipe: Options of the quantisation.
    """

    def __init__(self, source: Graph, profile: Profile, recipe: Recipe) -> None:
        self.source = source
        self.profile = profile
        self.recipe = recipe
        self.graph = Graph(source.name)
        self._names = {value.name for value in source.values()} | source.nodes.keys()
        self._floats: dict[Value, Value] = {}
        self._integers: dict[Value, Value] = {}
        self._parameters: dict[Value, Quantization] = {}
        self._constants: dict[tuple[str, str, Quantization | None], Value] = {}
        for placeholder in source.placeholders.values():
            self._floats[placeholder] = self.graph.placeholder(placeholder.name, placeholder.type)

    def can_quantize(self, value: Value) -> bool:
        """Return whether a value can be quantised: it is float32, finite, and profiled or constant."""
        if value.type.element != "float32":
            return False
        if isinstance(value, Constant):
            return bool(np.isfinite(value.data).all())
        return value.name in self.profile.distributions

    def is_mask(self, value: Value) -> bool:
        """Return whether a value that can be quantised is a mask, see `Distribution.is_mask`."""
        if not isinstance(value, Constant):
            return self.profile[value.name].is_mask
        return bool(value.data.size) and Distribution.of(value.data).is_mask

    def comes_as_integers(self, value: Value) -> bool:
        """Return whether a value costs no computed float: it has integers, or no node of the graph reads reals for it.

        Arithmetic between operators that stay in float is not worth rounding its inputs.
        """
        producer = value.producer
        computed = producer is not None and any(x is not None and x.type.is_float for x in producer.inputs)
        return value in self._integers or not (computed or isinstance(value, Constant))

    def has_integers(self, value: Value) -> bool:
        """Return whether a value is available as integers without inserting a Quantize."""
        return value in self._integers

    def parameters(self, value: Value) -> Quantization:
        """Return the parameters of a value of the float graph, from the profile and the recipe."""
        if value not in self._parameters:
            self._parameters[value] = self.range_parameters(*self._widened(value.name))
        return self._parameters[value]

    def _widened(self, name: str) -> tuple[float, float]:
        """Return the range of a profiled value, widened by the recipe's margin."""
        distribution, margin = self.profile[name], self.recipe.margin
        return distribution.low * margin, distribution.high * margin

    def pre_activation_parameters(self, y: Value, low: float, high: float | None) -> Quantization:
        """Return the parameters of what a fused activation reads.

        Args:
            y: The activation's result, a value of the float graph.
            low: Below it, the activation is constant within one step of its result.
            high: The same above; None if there is no such end.
        """
        name = pre_activation_name(y.name)
        if name not in self.profile.distributions or name in self._names:  # a profile of an earlier version
            return self.range_parameters(low, max(-low, self.profile[y.name].high) if high is None else high)
        least, most = self._widened(name)
        return self.range_parameters(max(least, low), most if high is None else min(most, high))

    def range_parameters(self, low: float, high: float) -> Quantization:
        """Return the parameters of an activation with this range."""
        scale, offset = choose_parameters(low, high, self.recipe.element, self.recipe.schema)
        return Quantization((scale,), (offset,))

    def as_float(self, value: Value) -> Value:
        """Return a value of the float graph with its original element type; insert a Dequantize if necessary."""
        if value not in self._floats:
            if isinstance(value, Constant):
                self._floats[value] = self.constant(value, value.data, value.type.quantization)
            else:
                name = f"{value.name}.dequantized"
                self._floats[value] = self.insert(Dequantize(), self._integers[value], name=name)
        return self._floats[value]

    def as_integers(self, value: Value) -> Value:
        """Return a value of the float graph as integers; insert a Quantize if necessary."""
        if value not in self._integers:
            element = self.recipe.element
            if isinstance(value, Constant):
                parameters = tensor_parameters(value.data, element, self.recipe.schema)
                array = quantize_array(value.data, parameters, element)
                self._integers[value] = self.constant(value, array, parameters)
            else:
                quantize, name = Quantize(element, self.parameters(value)), f"{value.name}.quantized"
                self._integers[value] = self.insert(quantize, self._floats[value], name=name)
        return self._integers[value]

    def with_parameters(self, value: Value, quantization: Quantization) -> Value:
        """Return a value as integers with these parameters; insert a Rescale if necessary."""
        integers = self.as_integers(value)
        if parameters_of(integers.type) == quantization:
            return integers
        return self.insert(Rescale(quantization), integers, name=f"{value.name}.rescaled")

    def constant(self, value: Value, data: np.ndarray, quantization: Quantization | None) -> Value:
        """Return a constant that replaces one of the float graph, with its name if that is unused."""
        key = (value.name, data.dtype.name, quantization)
        if key not in self._constants:
            is_used = value.name in self.graph.constants  # with other parameters
            name = self._unique(value.name) if is_used else value.name
            self._constants[key] = self.graph.constant(name, data, quantization)
        return self._constants[key]

    def insert(self, operator: Operator, *inputs: Value | None, name: str, node: str | None = None) -> Value:
        """Add a node that defines a value without a counterpart in the float graph, and return the value.

        Args:
            operator: The node's operator.
            inputs: Values of the quantised graph.
            name: The value's name; underscores are appended if the float graph uses it.
            node: The node's name; by default the value's.
        """
        name = self._unique(name)
        return self.graph.add(operator, *inputs, name=node or name, outputs=[name]).outputs[0]

    def define(self, value: Value, operator: Operator, *inputs: Value | None, node: str) -> None:
        """Add a node that defines a value of the float graph, as integers or in float, with the value's name."""
        result = self.graph.add(operator, *inputs, name=node, outputs=[value.name]).outputs[0]
        (self._floats if result.type.quantization is None else self._integers)[value] = result

    def copy(self, node: Node) -> None:
        """Copy a node of the float graph; it computes in float."""
        inputs = [None if value is None else self.as_float(value) for value in node.inputs]
        copy = self.graph.add(node.operator, *inputs, name=node.name, outputs=[value.name for value in node.outputs])
        self._floats |= dict(zip(node.outputs, copy.outputs, strict=True))

    def _unique(self, name: str) -> str:
        while name in self._names:
            name += "_"
        return name
