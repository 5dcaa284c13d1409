"""Execute a graph with XLA, by JAX: the whole graph as one function, compiled for each combination of input shapes.

The rule of an operator is a function of its attributes, its inputs' types and their arrays. For most, it is the
operator's `evaluate`, whose functions of arrays JAX has too. The rules here are for those whose `evaluate` depends on
elements, or that JAX computes faster in another way. They compute the same, except that an index out of range is an
error there only.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from mlhood.compiler.backends.interpreter import Observer
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import bind_inputs
from mlhood.compiler.hir.operator import as_tuple, located
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.operators import OPERATORS, blocked
from mlhood.compiler.operators.activation import Activation, operator_of
from mlhood.compiler.operators.dynamic import Dynamic
from mlhood.compiler.operators.integer import subtract_offsets
from mlhood.compiler.operators.rescale import subtract_offset
from mlhood.compiler.operators.windows import Window
from mlhood.errors import CompilerError

Arrays = dict[str, Any]
Array = Any  # of JAX, or traced
Types = tuple[TensorType | None, ...]
Rule = Callable[..., Any]  # (operator, types, *arrays) -> array, or a tuple of several
_EXACT = lax.Precision.HIGHEST  # on the CPU, float32 products are in float32 anyway


class Xla:
    """A graph, prepared for execution on the CPU by JAX.

    Weights are constants of the compiled function. An index out of range is not an error, and reads the nearest element
    instead.

    Args:
        graph: A graph; it is verified, and must not be modified afterwards.

    Raises:
        CompilerError: The graph is invalid, or has an operator that this target does not have.
    """

    def __init__(self, graph: Graph) -> None:
        verify(graph)
        self.graph = graph
        self._nodes = graph.topological()
        for node in self._nodes:
            _check_supported(node)
        self._compiled = jax.jit(self._outputs)
        self._node_functions: dict[Node, Callable[..., tuple[Any, ...]]] = {}

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Run the graph once; the first run for some input shapes compiles it.

        Args:
            inputs: An array for each placeholder, by name, of the declared element type and shape.
            observe: Called with each value that a node computes, and its array. Then each node is compiled and run on
                its own, so that times are those of nodes without fusion.

        Returns:
            The graph's outputs by name, read-only.

        Raises:
            CompilerError: An input is missing, unknown or of another type, or an operator fails on these inputs.
        """
        bound = self._bind(inputs)
        with _settings():
            outputs = self._compiled(bound) if observe is None else self._run_nodes(bound, observe)
            return {name: np.asarray(outputs[name]) for name in self.graph.outputs}  # JAX sorts them by name

    def lower(self, inputs: Mapping[str, Any]) -> jax.stages.Lowered:
        """Lower the graph for the shapes of some inputs to StableHLO, which `as_text` returns; see `run`."""
        with _settings():
            return self._compiled.lower(self._bind(inputs))

    def _bind(self, inputs: Mapping[str, Any]) -> Arrays:
        types = {name: placeholder.type for name, placeholder in self.graph.placeholders.items()}
        return bind_inputs(types, inputs, f"graph {self.graph.name!r}")

    def _outputs(self, inputs: Mapping[str, Any]) -> Arrays:
        """Compute the outputs; traced by JAX."""
        arrays = self._initial(inputs)
        for node in self._nodes:
            results = _apply(node, *(None if value is None else arrays[value] for value in node.inputs))
            arrays.update(zip(node.outputs, results, strict=True))
        return {name: arrays[value] for name, value in self.graph.outputs.items()}

    def _run_nodes(self, inputs: Mapping[str, Any], observe: Observer) -> Arrays:
        arrays = self._initial(inputs)
        for node in self._nodes:
            if node not in self._node_functions:
                self._node_functions[node] = jax.jit(lambda *inputs, node=node: _apply(node, *inputs))
            operands = (None if value is None else arrays[value] for value in node.inputs)
            for value, array in zip(node.outputs, self._node_functions[node](*operands), strict=True):
                arrays[value] = array
                observe(value, np.asarray(array))
        return {name: arrays[value] for name, value in self.graph.outputs.items()}

    def _initial(self, inputs: Mapping[str, Any]) -> dict[Value, Any]:
        arrays: dict[Value, Any] = {self.graph.placeholders[name]: array for name, array in inputs.items()}
        return arrays | {constant: constant.data for constant in self.graph.constants.values()}


@contextmanager
def _settings() -> Iterator[None]:
    """Use types of 64 bits, which JAX would narrow, and the CPU."""
    with jax.enable_x64(True), jax.default_device(jax.devices("cpu")[0]):
        yield


def _apply(node: Node, *arrays: Any) -> tuple[Any, ...]:
    """Compute a node's outputs, of the types that the graph declares."""
    types = tuple(None if value is None else value.type for value in node.inputs)
    with located(node.where, arrays):
        operator, count = node.operator.specialized([None if array is None else array.shape for array in arrays])
        results = as_tuple(RULES[operator.name](operator, types[:count], *map(_traceable, arrays[:count])))
    return tuple(
        jax.numpy.asarray(array).astype(value.type.dtype) for value, array in zip(node.outputs, results, strict=True)
    )


def _traceable(array: Any) -> Any:
    """Return a constant as an array of JAX: NumPy's operators would compute at compile time, and warn."""
    return None if array is None else jax.numpy.asarray(array)


def _check_supported(node: Node) -> None:
    """Raise CompilerError if there is no rule for a node."""
    operator: Any = node.operator.operator if isinstance(node.operator, Dynamic) else node.operator
    has_indices = operator.name == "MaxPool" and operator.indices
    if operator.name in RULES and not has_indices:
        return
    raise CompilerError(
        "the target xla does not have this operator" + (" with indices" if has_indices else ""),
        where=node.where,
        expected=", ".join(sorted(RULES)),
        got=operator.name,
        todo="run the graph on the target interpreter, which has all operators",
    )


def _onnx(operator: Any, types: Any, *arrays: Any) -> Any:
    """Call ONNX's reference implementation from the compiled function."""
    given = [None if array is None else TensorType(array.dtype.name, array.shape) for array in arrays]
    shapes = [(type.shape, type.dtype) for type in operator.infer(*given)]
    if any(isinstance(axis, str) for shape, _ in shapes for axis in shape):
        todo = "run the model on the target interpreter"
        raise CompilerError("the lengths of the results must be known before the run", got=operator.op_type, todo=todo)
    results = tuple(jax.ShapeDtypeStruct(*each) for each in shapes)
    return jax.pure_callback(lambda *inputs: operator.evaluate(*jax.tree.map(np.asarray, inputs)), results, *arrays)


# -- the rules of the operators


def activate(y: Array, activation: Activation) -> Array:
    """Return the activation of y."""
    if not activation:
        return y
    operator = operator_of(activation)
    return RULES[operator.name](operator, (), y)


def _convolve(x: Array, w: Array, operator: Any) -> Array:
    window = operator.window(w.shape)
    return lax.conv_general_dilated(
        *(x, w, window.strides, window.ends),
        rhs_dilation=window.dilations,
        feature_group_count=operator.group,
        precision=_EXACT,
    )


def _along_channels(vector: Array, rank: int) -> Array:
    return vector.reshape(-1, *(1,) * (rank - 2))


def _conv(operator: Any, types: Types, x: Array, w: Array, bias: Array = None, z: Array = None) -> Array:
    y = _convolve(x, w, operator)
    y = y if bias is None else y + _along_channels(bias, y.ndim)
    return activate(y if z is None else y + z, operator.activation)


def _conv_transpose(operator: Any, types: Types, x: Array, w: Array, bias: Array = None) -> Array:
    """Convolve the input, spread by the strides, with the kernel mirrored."""
    axes, group = len(operator.strides), operator.group
    grouped = w.reshape(group, w.shape[0] // group, *w.shape[1:]).swapaxes(1, 2)
    mirrored = jnp.flip(grouped.reshape(group * w.shape[1], -1, *w.shape[2:]), tuple(range(2, x.ndim)))
    spans = [(size - 1) * dilation for size, dilation in zip(w.shape[2:], operator.dilations, strict=True)]
    ends = zip(spans, operator.pads[:axes], operator.pads[axes:], operator.output_pads, strict=True)
    y = lax.conv_general_dilated(
        *(x, mirrored, (1,) * axes, [(span - before, span - after + more) for span, before, after, more in ends]),
        lhs_dilation=operator.strides,
        rhs_dilation=operator.dilations,
        feature_group_count=group,
        precision=_EXACT,
    )
    return y if bias is None else y + _along_channels(bias, y.ndim)


def _fully_connected(operator: Any, types: Types, x: Array, w: Array, bias: Array = None) -> Array:
    y = x @ w.T
    return activate(y if bias is None else y + bias, operator.activation)


def _windows(x: Array, window: Window, start: Any, combine: Callable[[Array, Array], Array]) -> Array:
    """Combine the elements of each window, the padding being `start`."""
    counts = window.output(x.shape[2:])
    ends = [(0, 0), (0, 0)]
    for size, n, stride, span, (before, after) in zip(
        x.shape[2:], counts, window.strides, window.spans, window.ends, strict=True
    ):
        ends.append((before, max(after, (int(n) - 1) * stride + span - size - before)))
    ones = (1, 1)
    sizes = (*ones, *window.kernel), (*ones, *window.strides)
    start = np.asarray(start, x.dtype)
    return lax.reduce_window(x, start, combine, *sizes, ends, window_dilation=(*ones, *window.dilations))


def _max_pool(operator: Any, types: Types, x: Array) -> Array:
    lowest = -np.inf if x.dtype.kind == "f" else np.iinfo(x.dtype).min
    return _windows(x, operator.window, lowest, lax.max)


def _average_pool(operator: Any, types: Types, x: Array) -> Array:
    ones = np.ones((1, 1, *x.shape[2:]), x.dtype)
    covered = operator.window.view(ones, 0, inner=1 if operator.count_pads else 0)
    count = covered.sum(axis=tuple(range(x.ndim, 2 * x.ndim - 2)), dtype=x.dtype)
    return _windows(x, operator.window, 0, lax.add) / count


def _power(operator: Any, types: Types, a: Array, b: Array) -> Array:
    base = a if a.dtype.kind == "f" else a.astype(np.float64)
    real = jnp.power(base, b.astype(base.dtype))
    integers = a.dtype.kind in "iu" and b.dtype.kind in "iu"
    return jnp.where(b < 0, real.astype(a.dtype), jnp.power(a, b.astype(a.dtype))) if integers else real


def _gather(operator: Any, types: Types, x: Array, indices: Array) -> Array:
    indices = jnp.where(indices < 0, indices + x.shape[operator.axis], indices)
    return jnp.take(x, indices, axis=operator.axis, mode="clip")


def _range(operator: Any, types: Any, start: Array, limit: Array, delta: Array, x: Array = None) -> Array:
    """Count by the axis of x; shapes must be known when a function is traced."""
    known = operator.length if x is None else x.shape[operator.axis] + operator.offset
    if isinstance(known, str):
        what = "the length of a range must be known before the run"
        raise CompilerError(what, got=known, todo="run the model on the target interpreter")
    return start.reshape(()) + jnp.arange(known).astype(start.dtype) * delta.reshape(())


def _quantized_conv(operator: Any, types: Any, x: Array, w: Array, bias: Array = None, z: Array = None) -> Array:
    return operator.rescaled(types, _convolve(*subtract_offsets(types, x, w), operator), bias, z)


def _quantized_average_pool(operator: Any, types: Any, x: Array) -> Array:
    return operator.mean(types[0], x.shape, _windows(subtract_offset(x, types[0]), operator.window, 0, lax.add))


def _shared(operator: Any, types: Types, *arrays: Array) -> Any:
    """Apply the reference semantics, which uses functions that NumPy and JAX share."""
    return operator.evaluate_typed(types, *arrays)


# Whose reference semantics only NumPy computes, and those that are made when a graph is lowered for the target cpu.
_ONLY_NUMPY = {"Dynamic", "GridSample", "Resize", "ElementwiseChain"}
_ONLY_NUMPY |= {operator.__name__ for operator in blocked.OPERATORS}


RULES: dict[str, Rule] = {
    **dict.fromkeys(OPERATORS.keys() - _ONLY_NUMPY, _shared),
    "Conv": _conv,
    "ConvTranspose": _conv_transpose,
    "FullyConnected": _fully_connected,
    "MaxPool": _max_pool,
    "AveragePool": _average_pool,
    "AddActivation": lambda operator, types, a, b: activate(a + b, operator.activation),
    "Gelu": lambda operator, types, x: jax.nn.gelu(x, approximate=operator.approximate == "tanh"),
    "Sigmoid": lambda operator, types, x: jax.nn.sigmoid(x),
    "Silu": lambda operator, types, x: jax.nn.silu(x),
    "Erf": lambda operator, types, x: jax.scipy.special.erf(x),
    "Pow": _power,
    "Gather": _gather,
    **dict.fromkeys(("RNN", "GRU", "LSTM"), lambda operator, types, *arrays: operator.compute(jnp, lax.scan, *arrays)),
    "Range": _range,
    "QuantizedConv": _quantized_conv,
    "QuantizedAveragePool": _quantized_average_pool,
    "OnnxOperator": _onnx,
}
