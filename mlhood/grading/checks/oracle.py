"""The facts about a submitted artefact: an ONNX model from ONNX Runtime, a compiler graph from the compiler's verifier
and interpreter. All of a submission's are read in one isolated process (`Submission.parser`)."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.rpc.codec import Hir
from mlhood.grading.rpc.limited import IsolatedCallError, IsolatedProcess

# the location of an error in ONNX Runtime's source, which does not help a student
SOURCE_LOCATION = re.compile(r"/\S+\.(cc|h):\d+ .*?\) ")
HINTS = (
    ("xternal data", "write everything into one file: external_data=False"),
    ("IR version", "give the model an IR version that runtimes read: make_model(graph, ir_version=10, ...)"),
    ("opset", "name an operator set that runtimes read: opset_imports=[helper.make_opsetid('', 18)]"),
    ("Graph output", "graph.output must name a value that the nodes compute"),
)


@dataclass(frozen=True)
class PortFacts:
    """An input or output of a graph: its name, and its dimensions as numbers, names, or None where unknown."""

    name: str
    dims: tuple[int | str | None, ...]

    @property
    def first(self) -> int | str | None:
        """The first dimension; None where the shape is unknown."""
        return self.dims[0] if self.dims else None


@dataclass(frozen=True)
class OnnxFacts:
    """Inputs, outputs and operators of an ONNX model, the results of running it, and its versions (IR, operators)."""

    inputs: tuple[PortFacts, ...]
    outputs: tuple[PortFacts, ...]
    operators: tuple[str, ...]
    results: tuple[np.ndarray, ...]
    versions: tuple[int, ...]


@dataclass(frozen=True)
class NodeFacts:
    """A node of a compiler graph: its name, operator and attributes, and the names of its inputs and outputs."""

    name: str
    operator: str
    attributes: dict[str, Any]
    inputs: tuple[str | None, ...]
    outputs: tuple[str, ...]


@dataclass(frozen=True)
class GraphFacts:
    """The nodes of a compiler graph, and the results of running it by the name of the output.

    They are in topological order; those of a graph in a node, such as a branch of an If, follow it.
    """

    nodes: tuple[NodeFacts, ...]
    results: dict[str, np.ndarray]

    def count(self, operator: str) -> int:
        """Return the number of nodes with this operator."""
        return sum(node.operator == operator for node in self.nodes)


def graph_facts(
    parser: IsolatedProcess, graphs: list[tuple[Hir, dict[str, np.ndarray]]], *, what: str
) -> list[GraphFacts]:
    """Parse compiler graphs, verify them, and run each on its inputs.

    Args:
        parser: The process that does it.
        graphs: Graphs from the student's process, each with an array for every placeholder; a graph without any array
            is not run.
        what: Their name in messages.

    Raises:
        CheckFailed: A graph is not valid, or does not run on its inputs.
    """
    try:
        results = parser.call("mlhood.grading.checks.oracle:_read_graphs", [list(pair) for pair in graphs])
    except IsolatedCallError as failure:
        raise CheckFailed(f"{what} is not a valid graph", got=str(failure)) from None
    return [GraphFacts(tuple(NodeFacts(*node) for node in nodes), outputs) for nodes, outputs in results]


def onnx_facts(parser: IsolatedProcess, data: bytes | Path, feed: np.ndarray | None = None, *, what: str) -> OnnxFacts:
    """Read an ONNX model in a process and, if `feed` is given, run it on its first input.

    If the model fixes the first dimension, it is run on batches of that size, so that a fixed batch fails only the
    check that asks for a dynamic one.

    Raises:
        CheckFailed: It is not an ONNX model, or ONNX Runtime rejects it.
    """
    content = data.read_bytes() if isinstance(data, Path) else data
    try:
        facts = parser.call("mlhood.grading.checks.oracle:_read_onnx", content, feed)
    except IsolatedCallError as failure:
        reason = SOURCE_LOCATION.sub("", str(failure))
        hint = next((hint for text, hint in HINTS if text in reason), None)
        raise CheckFailed(f"{what} is not a model that ONNX Runtime can run", got=reason, hint=hint) from None
    inputs, outputs = (
        tuple(PortFacts(name, tuple(dims)) for name, dims in facts[key]) for key in ("inputs", "outputs")
    )
    return OnnxFacts(inputs, outputs, *(tuple(facts[key]) for key in ("operators", "results", "versions")))


def _read_onnx(data: bytes, feed: np.ndarray | None) -> dict[str, Any]:
    import onnx

    if not data:
        raise ValueError("the file is empty")
    model = onnx.load_model_from_string(data)
    if not model.graph.node:
        raise ValueError("the model has no graph")
    initializers = {tensor.name for tensor in model.graph.initializer}
    inputs = [_describe(value) for value in model.graph.input if value.name not in initializers]
    return {
        "inputs": inputs,
        "outputs": [_describe(value) for value in model.graph.output],
        "operators": [node.op_type for node in model.graph.node],
        "results": [] if feed is None else _run(data, inputs[0], feed),
        "versions": [
            model.ir_version,
            *(each.version for each in model.opset_import if each.domain in ("", "ai.onnx")),
        ],
    }


def _read_graphs(graphs: list[list[Any]]) -> list[tuple[list[tuple[Any, ...]], dict[str, np.ndarray]]]:
    from mlhood.compiler.backends.interpreter import Interpreter

    results = []
    for graph, feeds in graphs:
        interpreter = Interpreter(graph)
        nodes = [_node_facts(node) for node in graph.topological()]
        results.append((nodes, interpreter.run(feeds) if feeds else {}))
    return results


def _node_facts(node: Any) -> tuple[Any, ...]:
    inputs = tuple(None if value is None else value.name for value in node.inputs)
    attributes = {name: _plain(value) for name, value in node.operator.attributes.items()}
    return node.name, node.operator.name, attributes, inputs, tuple(value.name for value in node.outputs)


def _plain(attribute: Any) -> Any:
    from mlhood.compiler.hir.types import Quantization

    return str(attribute) if isinstance(attribute, Quantization) else attribute


def _describe(value: Any) -> list[Any]:
    dims = [
        dim.dim_value if dim.HasField("dim_value") else dim.dim_param or None
        for dim in value.type.tensor_type.shape.dim
    ]
    return [value.name, dims]


def _run(data: bytes, first_input: list[Any], feed: np.ndarray) -> list[np.ndarray]:
    import onnxruntime

    onnxruntime.set_default_logger_severity(4)
    session = onnxruntime.InferenceSession(data, providers=["CPUExecutionProvider"])
    name, dims = first_input
    fixed = dims[0] if dims and isinstance(dims[0], int) and dims[0] > 0 else len(feed)
    padded = np.concatenate([feed, np.repeat(feed[-1:], -len(feed) % fixed, axis=0)])
    batches = [session.run(None, {name: padded[i : i + fixed]}) for i in range(0, len(padded), fixed)]
    return [np.concatenate([np.asarray(part) for part in parts])[: len(feed)] for parts in zip(*batches, strict=True)]
