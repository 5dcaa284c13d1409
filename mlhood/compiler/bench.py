"""How long the compiler takes, and how that grows: chains of up to 50,000 nodes, and ResNets from file to optimised.

A stage whose time is c n^e for n nodes has the exponent e: 1 where it is linear. It is the slope of log time over log
n, by least squares over all rounds; its interval is that of 95 % of the slopes of rounds drawn again with replacement.
Chains are timed in CPU time, which other programs on the machine disturb less.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import pandas as pd
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.errors import CompilerError
from mlhood.exchange import export
from mlhood.models import ResNet, resnet18, resnet50

SIZES = (1_000, 10_000, 50_000)
ROUNDS = 5
DRAWS = 2_000
NETWORKS: dict[str, Callable[[], ResNet]] = {"ResNet-18": resnet18, "ResNet-50": resnet50}


@dataclass(frozen=True)
class Work:
    """What the stages work on.

    Args:
        data: An ONNX file.
        graph: The same, imported.
    """

    data: bytes
    graph: Graph


# A stage is one line here: its name, and what is timed.
STAGES: dict[str, Callable[[Work], Any]] = {
    "import": lambda work: import_model(work.data),
    "verify": lambda work: verify(work.graph),
    "text": lambda work: to_text(work.graph),
    "copy": lambda work: work.graph.copy(),
    "optimize": lambda work: optimize(work.graph),
}


@dataclass(frozen=True)
class Growth:
    """The times of one stage.

    Args:
        stage: A key of `STAGES`.
        seconds: CPU time of each round, by number of nodes.
    """

    stage: str
    seconds: dict[int, list[float]]

    @property
    def exponent(self) -> float:
        """The slope of log time over log nodes."""
        return float(_slopes({nodes: np.array([times]) for nodes, times in self.seconds.items()})[0])

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """Return where 95 % of the slopes lie when rounds are drawn again."""
        draw = np.random.default_rng(seed)
        drawn = {nodes: draw.choice(times, (DRAWS, len(times))) for nodes, times in self.seconds.items()}
        low, high = np.quantile(_slopes(drawn), [0.025, 0.975])
        return float(low), float(high)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Give one row a number of nodes, as plain data."""
        low, high = self.interval()
        for nodes, times in self.seconds.items():
            median = statistics.median(times)
            yield {
                "stage": self.stage,
                "nodes": nodes,
                "seconds": times,
                "median_s": median,
                "us_per_node": 1e6 * median / nodes,
                "exponent": self.exponent,
                "exponent_low": low,
                "exponent_high": high,
            }


def chain(nodes: int) -> onnx.ModelProto:
    """Return a network of blocks one after the other, of this many nodes: float32 [batch, 4, 8, 8] in and out.

    A block is Conv, Relu, Conv, Add (of the block's input), Identity, MaxPool, with weights of its own.
    """
    made: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    last = "image"
    while len(made) < nodes:
        block, tensors = _block(len(made), last)
        made += block[: nodes - len(made)]
        weights += tensors
        last = made[-1].output[0]
    declared = [helper.make_tensor_value_info(name, TensorProto.FLOAT, ["batch", 4, 8, 8]) for name in ("image", last)]
    graph = helper.make_graph(made, f"chain of {nodes}", declared[:1], declared[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _block(number: int, last: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    name = f"block{number}"
    draw = np.random.default_rng(number)
    weights = {f"{name}.w{i}": draw.standard_normal((4, 4, 1, 1), np.float32) for i in (1, 2)}
    weights |= {f"{name}.b{i}": draw.standard_normal(4, np.float32) for i in (1, 2)}
    node = helper.make_node
    block = [
        node("Conv", [last, f"{name}.w1", f"{name}.b1"], [f"{name}.conv1"], f"{name}.conv1"),
        node("Relu", [f"{name}.conv1"], [f"{name}.relu"], f"{name}.relu"),
        node("Conv", [f"{name}.relu", f"{name}.w2", f"{name}.b2"], [f"{name}.conv2"], f"{name}.conv2"),
        node("Add", [f"{name}.conv2", last], [f"{name}.add"], f"{name}.add"),
        node("Identity", [f"{name}.add"], [f"{name}.same"], f"{name}.same"),
        node("MaxPool", [f"{name}.same"], [f"{name}.pool"], f"{name}.pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    return block, [numpy_helper.from_array(array, name) for name, array in weights.items()]


def growth(
    sizes: Sequence[int] = SIZES, rounds: int = ROUNDS, report: Callable[[str], None] = lambda line: None
) -> list[Growth]:
    """Time all stages on chains of several lengths, all of them in each round.

    Args:
        sizes: Numbers of nodes, two different ones at least.
        rounds: How often.
        report: Called with a line about each round.

    Raises:
        CompilerError: There are fewer than two sizes, or no rounds.
    """
    if len(set(sizes)) < 2 or min(sizes) < 1 or rounds < 1:
        raise CompilerError("a slope needs two lengths and a round", got=f"lengths {list(sizes)}, {rounds} rounds")
    work = {}
    for nodes in sizes:
        data = chain(nodes).SerializeToString()
        work[nodes] = Work(data, import_model(data))
    times: dict[str, dict[int, list[float]]] = {stage: {nodes: [] for nodes in sizes} for stage in STAGES}
    _round(work[min(sizes)])  # what is loaded late is loaded now
    for number in range(rounds):
        report(f"chains: round {number + 1} of {rounds}")
        for nodes, one in work.items():
            for stage, seconds in _round(one).items():
                times[stage][nodes].append(seconds)
    return [Growth(stage, seconds) for stage, seconds in times.items()]


def networks(rounds: int = ROUNDS, report: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Time ResNets with BatchNorm kept from the file to the optimised graph; one row each, as plain data."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, build in NETWORKS.items():
            report(f"{name}: exporting")
            image = np.zeros((1, 3, 224, 224), np.float32)
            path = export(build().eval(), image, Path(folder) / "model.onnx", keep_batchnorm=True)
            rows.append({"network": name, **_file(path, rounds)})
    return rows


def _file(path: Path, rounds: int) -> dict[str, Any]:
    graph = import_model(path)
    result = optimize(graph)
    imported = [_timed(lambda: import_model(path))[0] for _ in range(rounds)]
    optimized = [_timed(lambda: optimize(graph))[0] for _ in range(rounds)]
    return {
        "nodes": len(graph.nodes),
        "nodes_optimized": len(result.nodes),
        "import_s": statistics.median(imported),
        "optimize_s": statistics.median(optimized),
        "total_s": statistics.median(map(sum, zip(imported, optimized, strict=True))),
    }


def _round(work: Work) -> dict[str, float]:
    gc.collect()  # so that no round pays for what another left
    return {stage: _timed(lambda run=run: run(work), time.process_time)[0] for stage, run in STAGES.items()}


def _timed(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> tuple[float, Any]:
    start = clock()
    result = run()
    return clock() - start, result


def _slopes(seconds: dict[int, np.ndarray]) -> np.ndarray:
    """Return the least-squares slope for each row of times, which stand as [row, round] by number of nodes."""
    x = np.concatenate([np.full(times.shape[1], np.log(nodes)) for nodes, times in seconds.items()])
    y = np.log(np.maximum(np.concatenate(list(seconds.values()), axis=1), 1e-9))
    x = x - x.mean()
    return y @ x / (x @ x)


def tables(chains: Sequence[dict[str, Any]], networks: Sequence[dict[str, Any]]) -> str:
    """Return the rows of `Growth.rows` and of `networks` as people read them."""
    frame = pd.DataFrame(chains)
    wide = frame.pivot_table(index="stage", columns="nodes", values="us_per_node", sort=False)
    wide.columns = [f"{nodes:,} nodes [us/node]" for nodes in wide.columns]
    ends = frame.drop_duplicates("stage")
    limits = zip(ends["exponent"], ends["exponent_low"], ends["exponent_high"], strict=True)
    wide["exponent"] = [f"{middle:.2f} [{low:.2f}, {high:.2f}]" for middle, low, high in limits]
    found = [wide.to_string(float_format="{:.1f}".format)]
    if networks:
        found.append(pd.DataFrame(networks).to_string(index=False, float_format="{:.2f}".format))
    return "\n\n".join(found)
