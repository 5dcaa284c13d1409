"""Compile time and how it grows: chains of up to 50,000 nodes, and ResNets from file to optimised graph.

A stage that takes c n^e seconds for n nodes has the exponent e, 1 if it is linear: the slope of log time over log n, by
least squares. Chains are measured in CPU time, which is less sensitive to other processes.
"""

from __future__ import annotations

import gc
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import onnx
import pandas as pd
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.exchange import export
from mlhood.models import ResNet, resnet18, resnet50

SIZES = (1_000, 10_000, 50_000)
NETWORKS: dict[str, Callable[[], ResNet]] = {"ResNet-18": resnet18, "ResNet-50": resnet50}


class Sample(NamedTuple):
    """The input of the stages: an ONNX file, and the graph imported from it."""

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


def time_chains(rounds: int, sizes: Sequence[int] = SIZES) -> pd.DataFrame:
    """Return a row for each stage: microseconds a node in the median, by the chain's length, and the exponent."""
    samples = {}
    for nodes in sizes:
        data = chain(nodes).SerializeToString()
        samples[nodes] = Sample(data, import_model(data))
    times: dict[str, dict[int, list[float]]] = {stage: {nodes: [] for nodes in sizes} for stage in STAGES}
    _time_stages(samples[min(sizes)])  # warm-up
    for _ in range(rounds):
        for nodes, sample in samples.items():
            for stage, seconds in _time_stages(sample).items():
                times[stage][nodes].append(seconds)
    columns = [f"{nodes:,} nodes [us/node]" for nodes in sizes]
    rows = [[1e6 * statistics.median(seconds) / nodes for nodes, seconds in row.items()] for row in times.values()]
    return pd.DataFrame(rows, index=list(times), columns=columns).assign(exponent=[*map(exponent, times.values())])


def exponent(seconds: dict[int, list[float]]) -> float:
    """Return the slope of log time over log nodes, for the times of the rounds by number of nodes."""
    points = np.log([(nodes, max(each, 1e-9)) for nodes, times in seconds.items() for each in times])
    return float(np.polyfit(points[:, 0], points[:, 1], 1)[0])


def time_networks(rounds: int) -> pd.DataFrame:
    """Return a row for each ResNet with BatchNormalization: nodes, and median seconds to import and to optimise it."""
    rows = {}
    with tempfile.TemporaryDirectory() as folder:
        for name, build in NETWORKS.items():
            image = np.zeros((1, 3, 224, 224), np.float32)
            path = export(build().eval(), image, Path(folder) / "model.onnx", keep_batchnorm=True)
            graph = import_model(path)
            rows[name] = {
                "nodes": len(graph.nodes),
                "nodes_optimized": len(optimize(graph).nodes),
                "import_s": statistics.median(_time(lambda path=path: import_model(path)) for _ in range(rounds)),
                "optimize_s": statistics.median(_time(lambda graph=graph: optimize(graph)) for _ in range(rounds)),
            }
    return pd.DataFrame.from_dict(rows, orient="index")


def _time_stages(sample: Sample) -> dict[str, float]:
    gc.collect()  # do not charge this round with garbage of the previous one
    return {stage: _time(lambda run=run: run(sample), time.process_time) for stage, run in STAGES.items()}


def _time(run: Callable[[], Any], clock: Callable[[], float] = time.perf_counter) -> float:
    start = clock()
    run()
    return clock() - start
