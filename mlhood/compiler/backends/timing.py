"""Measure the execution time of each node of a graph."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.errors import CompilerError

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
    if not isinstance(rounds, int) or rounds < 1:
        raise CompilerError("invalid number of rounds", expected="1 or more", got=repr(rounds))
    shapes: dict[Value, tuple[int, ...]] = {}
    runner.run(inputs, lambda value, array: shapes.update({value: array.shape}))
    seconds: dict[Node, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for node, elapsed in _time_nodes(runner, inputs).items():
            seconds[node].append(elapsed)
    input_shapes = {name: np.shape(array) for name, array in inputs.items()}
    rows = {node.name: _row(node, shapes, input_shapes) | {"seconds": median(times)} for node, times in seconds.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["operator", "shape", "macs", "seconds"])


def _time_nodes(runner: Runner, inputs: Mapping[str, Any]) -> dict[Node, float]:
    seconds: dict[Node, float] = defaultdict(float)
    last = perf_counter()

    def observe(value: Value, _: np.ndarray) -> None:
        nonlocal last
        now = perf_counter()
        if value.producer is not None:
            seconds[value.producer] += now - last
        last = now

    runner.run(inputs, observe)
    return seconds


def _row(
    node: Node, shapes: Mapping[Value, tuple[int, ...]], input_shapes: Mapping[str, tuple[int, ...]]
) -> dict[str, Any]:
    inputs = [() if value is None else _shape(value, shapes, input_shapes) for value in node.inputs]
    shape = shapes[node.outputs[0]]
    return {"operator": node.operator.name, "shape": shape, "macs": node.operator.macs(inputs, shape) or 0}


def _shape(value: Value, shapes: Mapping[Value, tuple[int, ...]], input_shapes: Mapping[str, tuple[int, ...]]) -> Any:
    if isinstance(value, Constant):
        return value.data.shape
    return shapes[value] if value in shapes else input_shapes[value.name]
