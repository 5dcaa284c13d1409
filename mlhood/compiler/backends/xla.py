"""Execute a graph with XLA, by JAX: the whole graph as one function, compiled for each combination of input shapes."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from functools import partial
from typing import Any

import jax
import numpy as np
from jax import lax

from mlhood.compiler.backends import xla_operators
from mlhood.compiler.backends.interpreter import Observer
from mlhood.compiler.hir.graph import Graph, all_nodes
from mlhood.compiler.hir.inputs import bind_inputs
from mlhood.compiler.hir.operator import as_tuple, located
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.hir.values import Node, Value
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.operators.control_flow import run
from mlhood.compiler.operators.dynamic import Dynamic
from mlhood.errors import CompilerError

Arrays = dict[str, Any]


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
        for node in all_nodes(graph):
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


def _if(operator: Any, types: Any, condition: Any, *captured: Any) -> Any:
    first, second = (
        partial(run, *pair, lambda node, arrays: _apply(node, *arrays)) for pair in operator.split(captured)
    )
    return lax.cond(condition.reshape(()), first, second)


def _onnx(operator: Any, types: Any, *arrays: Any) -> Any:
    """Call ONNX's reference implementation from the compiled function."""
    given = [None if array is None else TensorType(array.dtype.name, array.shape) for array in arrays]
    shapes = [(type.shape, type.dtype) for type in operator.infer(*given)]
    if any(isinstance(axis, str) for shape, _ in shapes for axis in shape):
        todo = "run the model on the target interpreter"
        raise CompilerError("the lengths of the results must be known before the run", got=operator.op_type, todo=todo)
    results = tuple(jax.ShapeDtypeStruct(*each) for each in shapes)
    return jax.pure_callback(lambda *inputs: operator.evaluate(*jax.tree.map(np.asarray, inputs)), results, *arrays)


RULES = xla_operators.RULES | {"If": _if, "OnnxOperator": _onnx}
