"""Measure compile time and its scaling: chains of up to 50,000 nodes, and ResNets from file to optimised graph.

A stage that takes c n^e seconds for n nodes has the exponent e, 1 if it is linear. It is estimated as the slope of log
time over log n, by least squares over all rounds; its 95 % confidence interval is the bootstrap's. Chains are measured
in CPU time, which is less sensitive to other processes.
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
BOOTSTRAP_SAMPLES = 2_000
NETWORKS: dict[str, Callable[[], ResNet]] = {"ResNet-18": resnet18, "ResNet-50": resnet50}


@dataclass(frozen=True)
class Sample:
    """The input of the stages.

    Args:
        data: An ONNX file.
        graph: The graph imported from it.
    """

    data: bytes
    graph: Graph


# The timed functions by stage.
STAGES: dict[str, Callable[[Sample], Any]] = {
    "import": lambda sample: import_model(sample.data),
    "verify": lambda sample: verify(sample.graph),
    "text": lambda sample: to_text(sample.graph),
    "copy": lambda sample: sample.graph.copy(),
    "optimize": lambda sample: optimize(sample.graph),
}


@dataclass(frozen=True)
class Scaling:
    """The times of one stage.

    Args:
        stage: A key of `STAGES`.
        seconds: CPU times of the rounds, by number of nodes.
    """

    stage: str
    seconds: dict[int, list[float]]

    @property
    def exponent(self) -> float:
        """The slope of log time over log nodes."""
        return float(_slopes({nodes: np.array([times]) for nodes, times in self.seconds.items()})[0])

    def interval(self, seed: int = 0) -> tuple[float, float]:
        """Return the 95 % bootstrap confidence interval of the exponent."""
        rng = np.random.default_rng(seed)
        samples = {nodes: rng.choice(times, (BOOTSTRAP_SAMPLES, len(times))) for nodes, times in self.seconds.items()}
        low, high = np.quantile(_slopes(samples), [0.025, 0.975])
        return float(low), float(high)

    def rows(self) -> Iterator[dict[str, Any]]:
        """Yield one row per number of nodes, as JSON-serialisable data."""
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
    """Return a sequential network with this number of nodes: float32 [batch, 4, 8, 8] in and out.

    It repeats a block of Conv, Relu, Conv, Add (with the block's input), Identity, MaxPool, each with its own weights.
    """
    protos: list[onnx.NodeProto] = []
    weights: list[onnx.TensorProto] = []
    previous = "image"
    while len(protos) < nodes:
        block, tensors = _block(len(protos), previous)
        protos += block[: nodes - len(protos)]
        weights += tensors
        previous = protos[-1].output[0]
    shape = ["batch", 4, 8, 8]
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("image", previous)]
    graph = helper.make_graph(protos, f"chain of {nodes}", values[:1], values[1:], weights)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=8)


def _block(index: int, previous: str) -> tuple[list[onnx.NodeProto], list[onnx.TensorProto]]:
    name = f"block{index}"
    rng = np.random.default_rng(index)
    weights = {f"{name}.w{i}": rng.standard_normal((4, 4, 1, 1), np.float32) for i in (1, 2)}
    weights |= {f"{name}.b{i}": rng.standard_normal(4, np.float32) for i in (1, 2)}
    node = helper.make_node
    block = [
        node("Conv", [previous, f"{name}.w1", f"{name}.b1"], [f"{name}.conv1"], f"{name}.conv1"),
        node("Relu", [f"{name}.conv1"], [f"{name}.relu"], f"{name}.relu"),
        node("Conv", [f"{name}.relu", f"{name}.w2", f"{name}.b2"], [f"{name}.conv2"], f"{name}.conv2"),
        node("Add", [f"{name}.conv2", previous], [f"{name}.add"], f"{name}.add"),
        node("Identity", [f"{name}.add"], [f"{name}.same"], f"{name}.same"),
        node("MaxPool", [f"{name}.same"], [f"{name}.pool"], f"{name}.pool", kernel_shape=[3, 3], pads=[1, 1, 1, 1]),
    ]
    return block, [numpy_helper.from_array(array, name) for name, array in weights.items()]


def measure_scaling(
    sizes: Sequence[int] = SIZES, rounds: int = ROUNDS, report: Callable[[str], None] = lambda line: None
) -> list[Scaling]:
    """Time all stages on chains of several lengths; each round times all of them.

    Args:
        sizes: Numbers of nodes, at least two different ones.
        rounds: Number of rounds.
        report: Called with a progress message before each round.

    Raises:
        CompilerError: There are fewer than two sizes, or no rounds.
    """
    if len(set(sizes)) < 2 or min(sizes) < 1 or rounds < 1:
        got = f"sizes {list(sizes)}, {rounds} rounds"
        raise CompilerError("a slope needs at least two sizes and one round", got=got)
    samples = {}
    for nodes in sizes:
        data = chain(nodes).SerializeToString()
        samples[nodes] = Sample(data, import_model(data))
    times: dict[str, dict[int, list[float]]] = {stage: {nodes: [] for nodes in sizes} for stage in STAGES}
    _time_stages(samples[min(sizes)])  # warm-up
    for i in range(rounds):
        report(f"chains: round {i + 1} of {rounds}")
        for nodes, sample in samples.items():
            for stage, seconds in _time_stages(sample).items():
                times[stage][nodes].append(seconds)
    return [Scaling(stage, seconds) for stage, seconds in times.items()]


def time_networks(rounds: int = ROUNDS, report: Callable[[str], None] = lambda line: None) -> list[dict[str, Any]]:
    """Time ResNets with BatchNormalization from file to optimised graph; one row each, as JSON-serialisable data."""
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        for name, build in NETWORKS.items():
            report(f"{name}: exporting")
            image = np.zeros((1, 3, 224, 224), np.float32)
            path = export(build().eval(), image, Path(folder) / "model.onnx", keep_batchnorm=True)
            rows.append({"network": name, **_time_file(path, rounds)})
    return rows


def _time_file(path: Path, rounds: int) -> dict[str, Any]:
    graph = import_model(path)
    optimized = optimize(graph)
    import_times = [_time(lambda: import_model(path)) for _ in range(rounds)]
    optimize_times = [_time(lambda: optimize(graph)) for _ in range(rounds)]
    return {
        "nodes": len(graph.nodes),
        "nodes_optimized": len(optimized.nodes),
        "import_s": statistics.median(import_times),
        "optimize_s": statistics.median(optimize_times),
        "total_s": statistics.median(map(sum, zip(import_times, optimize_times, strict=True))),
    }


def _time_stages(sample: Sample) -> dict[str, float]:
    gc.collect()  # do not charge this round with garbage of the previous one
    return {stage: _time(lambda run=run: run(sample), time.process_time) for stage, run in STAGES.items()}


def _time(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    run()
    return clock() - start


def _slopes(seconds: dict[int, np.ndarray]) -> np.ndarray:
    """Return the least-squares slope for each row of times [row, round], given by number of nodes."""
    x = np.concatenate([np.full(times.shape[1], np.log(nodes)) for nodes, times in seconds.items()])
    y = np.log(np.maximum(np.concatenate(list(seconds.values()), axis=1), 1e-9))
    x = x - x.mean()
    return y @ x / (x @ x)


def format_tables(chains: Sequence[dict[str, Any]], networks: Sequence[dict[str, Any]]) -> str:
    """Return the rows of `Scaling.rows` and of `time_networks` as text tables."""
    frame = pd.DataFrame(chains)
    wide = frame.pivot_table(index="stage", columns="nodes", values="us_per_node", sort=False)
    wide.columns = [f"{nodes:,} nodes [us/node]" for nodes in wide.columns]
    stages = frame.drop_duplicates("stage")
    exponents = zip(stages["exponent"], stages["exponent_low"], stages["exponent_high"], strict=True)
    wide["exponent"] = [f"{exponent:.2f} [{low:.2f}, {high:.2f}]" for exponent, low, high in exponents]
    tables = [wide.to_string(float_format="{:.1f}".format)]
    if networks:
        tables.append(pd.DataFrame(networks).to_string(index=False, float_format="{:.2f}".format))
    return "\n\n".join(tables)
