"""How long each node of a graph takes."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Mapping
from statistics import median
from time import perf_counter
from typing import Any

import numpy as np
import pandas as pd

from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.operators.convolution import Convolution
from mlhood.compiler.operators.integer import MatMulInteger, QuantizedFullyConnected, QuantizedMatMul
from mlhood.compiler.operators.matrix import FullyConnected, Gemm, MatMul
from mlhood.compiler.operators.transposed_convolution import ConvTranspose
from mlhood.errors import CompilerError

ROUNDS = 21


def profile(runner: Runner, inputs: Mapping[str, Any], rounds: int = ROUNDS) -> pd.DataFrame:
    """Time each node of a graph.

    A node's time runs from the end of the node before to its own end: what the back end does between nodes is in it,
    and all of them together are a run. Rounds go through the whole graph, as caches would otherwise hold what they do
    not hold in a run; one before them is not counted.

    Args:
        runner: What runs the graph.
        inputs: An array for each input, by name.
        rounds: How often the graph is run.

    Returns:
        A row a node, under its name and in the order of running: `operator`, `shape` of its first output,
        `macs` (multiply-accumulates of convolutions and matrix products, pads included; 0 for all others), and
        `seconds`, the median of the rounds.

    Raises:
        CompilerError: There are no rounds, or the graph cannot run on these inputs.
    """
    if not isinstance(rounds, int) or rounds < 1:
        raise CompilerError("nothing can be timed in that many rounds", expected="1 or more", got=repr(rounds))
    shapes: dict[Value, tuple[int, ...]] = {}
    runner.run(inputs, lambda value, array: shapes.update({value: array.shape}))
    seconds: dict[Node, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for node, taken in _round(runner, inputs).items():
            seconds[node].append(taken)
    given = {name: np.shape(array) for name, array in inputs.items()}
    rows = {node.name: _row(node, shapes, given) | {"seconds": median(taken)} for node, taken in seconds.items()}
    return pd.DataFrame.from_dict(rows, orient="index", columns=["operator", "shape", "macs", "seconds"])


def _round(runner: Runner, inputs: Mapping[str, Any]) -> dict[Node, float]:
    taken: dict[Node, float] = defaultdict(float)
    before = perf_counter()

    def observe(value: Value, _: np.ndarray) -> None:
        nonlocal before
        now = perf_counter()
        if value.producer is not None:
            taken[value.producer] += now - before
        before = now

    runner.run(inputs, observe)
    return taken


def _row(node: Node, made: Mapping[Value, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    read = [() if value is None else _shape(value, made, given) for value in node.inputs]
    shape = made[node.outputs[0]]
    return {"operator": node.operator.name, "shape": shape, "macs": _macs(node, read, shape)}


def _shape(value: Value, made: Mapping[Value, tuple[int, ...]], given: Mapping[str, tuple[int, ...]]) -> Any:
    if isinstance(value, Constant):
        return value.data.shape
    return made[value] if value in made else given[value.name]


def _macs(node: Node, read: list[tuple[int, ...]], shape: tuple[int, ...]) -> int:
    """Count multiply-accumulates: for each number of the output those that make it, or of the input those it is in."""
    operator = node.operator
    if isinstance(operator, Convolution | FullyConnected | QuantizedFullyConnected):
        return math.prod(shape) * math.prod(read[1][1:])
    if isinstance(operator, ConvTranspose):
        return math.prod(read[0]) * math.prod(read[1][1:])
    if isinstance(operator, Gemm | MatMul | QuantizedMatMul | MatMulInteger):
        transposed = isinstance(operator, Gemm) and operator.transpose_a
        return math.prod(shape) * (read[0][0] if transposed else read[0][-1])
    return 0
