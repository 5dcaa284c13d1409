"""How long each node of a graph takes, and how well it uses the processor."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value
from mlhood.errors import CompilerError

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 21


def profile(runner: Runner, inputs: Mapping[str, Any], rounds: int = ROUNDS) -> pd.DataFrame:
    """Time each node of a graph.

    A node's time is the interval from the end of the preceding node to its own end: it includes the back end's overhead
    between nodes, and the times add up to that of a run. Each round runs the whole graph, because repeating a single
    node would find its data in the cache; a warm-up run is not counted.

    Args:
        runner: The prepared graph.
        inputs: An array for each input, by name.
        rounds: Number of measured runs.

    Returns:
        A row per node, indexed by its name and in execution order: `operator`, `shape` of its first output,
        `macs` (multiply-accumulates of convolutions and matrix products, padding included; 0 for all others), and
        `seconds`, the median over the rounds.

    Raises:
        CompilerError: `rounds` is invalid, or the graph cannot run on these inputs.
    """
    import pandas as pd  # a quarter of the memory that compiling and running a small model takes

    if not isinstance(rounds, int) or rounds < 1:
        raise CompilerError("invalid number of rounds", expected="1 or more", got=repr(rounds))
    shape = shapes(runner, inputs)
    seconds: dict[Node, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for node, time in node_seconds(runner, inputs).items():
            seconds[node].append(time)
    rows = {node.name: {**_work(node, shape), "seconds": median(times)} for node, times in seconds.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["operator", "shape", "macs", "seconds"])


def report(runner: Runner, inputs: Mapping[str, Any], rounds: int = ROUNDS) -> pd.DataFrame:
    """Return how well each node of a graph uses the processor.

    Args:
        runner: The prepared graph.
        inputs: An array for each input, by name.
        rounds: Number of measured runs.

    Returns:
        The rows of `profile`, with `kernel` (what computes the node, if the target reports it), `layout` of its result,
        `GFLOP/s` (two operations per multiply-accumulate), `peak`, its share of the measured peak of as many threads,
        `bytes` (inputs, constants and outputs, each once) and `GB/s`.

    Raises:
        CompilerError: As for `profile`.
    """
    from mlhood.kernels import parallel  # loads LLVM, as the measured peak does, which the interpreter does not need
    from mlhood.measure import limits

    table, threads, shape = profile(runner, inputs, rounds), parallel.threads(), shapes(runner, inputs)
    graph, kernels = getattr(runner, "graph", None), getattr(runner, "kernels", None)
    nodes = {} if graph is None else graph.nodes
    told = {} if kernels is None else kernels(inputs)
    outputs = [nodes[name].outputs[0].name if name in nodes else "" for name in table.index]
    table["kernel"] = [told.get(name, ("", ""))[0] for name in outputs]
    table["layout"] = [told.get(name, ("", "plain"))[1] for name in outputs]
    table["GFLOP/s"] = 2e-9 * table["macs"] / table["seconds"]
    table["peak"] = 1e9 * table["GFLOP/s"] / limits.peak(threads).value
    table["bytes"] = [_bytes(nodes[name], shape) if name in nodes else 0 for name in table.index]
    table["GB/s"] = 1e-9 * table["bytes"] / table["seconds"]
    return table


def moved_bytes(runner: Runner, inputs: Mapping[str, Any]) -> int:
    """Return the bytes that the nodes of a graph read and write, each input, constant and output once per node.

    Args:
        runner: The prepared graph; 0 if it has no attribute `graph`.
        inputs: An array for each input, by name.
    """
    graph = getattr(runner, "graph", None)
    shape = shapes(runner, inputs)
    return 0 if graph is None else sum(_bytes(node, shape) for node in graph.nodes.values())


def _bytes(node: Node, shape: Callable[[Value], tuple[int, ...]]) -> int:
    values = {value for value in (*node.inputs, *node.outputs) if value is not None}
    sizes = ((value.data.shape if isinstance(value, Constant) else shape(value), value) for value in values)
    return sum(math.prod(size) * value.type.dtype.itemsize for size, value in sizes)


def node_seconds(runner: Runner, inputs: Mapping[str, Any]) -> dict[Node, float]:
    """Run a graph once, and return how long each of its nodes took, in execution order; see `profile`."""
    nodes: dict[Node, float] = {}
    last = perf_counter()

    def observe(value: Value, _: np.ndarray) -> None:
        nonlocal last
        now, node = perf_counter(), value.producer
        if node is not None:
            nodes[node] = nodes.get(node, 0.0) + now - last
        last = now

    runner.run(inputs, observe)
    return nodes


def shapes(runner: Runner, inputs: Mapping[str, Any]) -> Callable[[Value], tuple[int, ...]]:
    """Run a graph once, and return a function that gives the shape of each value in this run.

    The shape of a value that the target does not show is the declared one, a dynamic axis taken as 1.
    """
    seen: dict[Value, tuple[int, ...]] = {}
    runner.run(inputs, lambda value, array: seen.update({value: array.shape}))

    def shape(value: Value) -> tuple[int, ...]:
        if value in seen:
            return seen[value]
        if isinstance(value, Placeholder) and value.name in inputs:
            return np.shape(inputs[value.name])
        return tuple(axis if isinstance(axis, int) else 1 for axis in value.type.shape)

    return shape


def _work(node: Node, shape: Callable[[Value], tuple[int, ...]]) -> dict[str, Any]:
    """Return the operator of a node, the shape of its first output, and its multiply-accumulates."""
    inputs = [() if value is None else shape(value) for value in node.inputs]
    output = shape(node.outputs[0])
    return {"operator": node.operator.name, "shape": output, "macs": node.operator.macs(inputs, output) or 0}
