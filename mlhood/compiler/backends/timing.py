"""When each node of a graph runs: as a table of times, and as a file for a trace viewer.

The file is for Perfetto (ui.perfetto.dev) or chrome://tracing, in Google's Trace Event Format, which is JSON: complete
events, "ph" "X", with start and duration in microseconds. A viewer nests events of one track by containment, so that a
run encloses its nodes. Each run has its own track.
"""

from __future__ import annotations

import json
import math
from collections import defaultdict
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from statistics import median
from time import perf_counter
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.hir.values import Constant, Node, Placeholder, Value
from mlhood.errors import CompilerError
from mlhood.files.atomic import check_output, write_atomic
from mlhood.measure import machine

if TYPE_CHECKING:
    import pandas as pd

ROUNDS = 21
TRACED_ROUNDS = 5
_PROCESS = 1  # all tracks belong to one process, whose number is arbitrary
Event = dict[str, Any]


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

    check_rounds(rounds)
    shape = shapes(runner, inputs)
    seconds: dict[Node, list[float]] = defaultdict(list)
    for _ in range(rounds):
        for node, interval in intervals(runner, inputs)[1].items():
            seconds[node].append(interval.seconds)
    rows = {node.name: work(node, shape) | {"seconds": median(times)} for node, times in seconds.items()}
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


def check_rounds(rounds: object) -> None:
    """Raise CompilerError unless this is a number of runs, at least 1."""
    if not isinstance(rounds, int) or rounds < 1:
        raise CompilerError("invalid number of rounds", expected="1 or more", got=repr(rounds))


@dataclass
class Interval:
    """When something was executed, in seconds of the clock.

    Args:
        start: Its start; that of a node is the end of the preceding one.
        end: Its end.
    """

    start: float
    end: float

    @property
    def seconds(self) -> float:
        """Its duration."""
        return self.end - self.start


def intervals(runner: Runner, inputs: Mapping[str, Any]) -> tuple[Interval, dict[Node, Interval]]:
    """Run a graph once, and return the interval of the run, and those of its nodes in execution order."""
    nodes: dict[Node, Interval] = {}
    start = last = perf_counter()

    def observe(value: Value, _: np.ndarray) -> None:
        nonlocal last
        now, node = perf_counter(), value.producer
        if node is not None:
            nodes.setdefault(node, Interval(last, now)).end = now
        last = now

    runner.run(inputs, observe)
    return Interval(start, perf_counter()), nodes


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


def work(node: Node, shape: Callable[[Value], tuple[int, ...]]) -> dict[str, Any]:
    """Return the operator of a node, the shape of its first output, and its multiply-accumulates."""
    inputs = [() if value is None else shape(value) for value in node.inputs]
    output = shape(node.outputs[0])
    return {"operator": node.operator.name, "shape": output, "macs": node.operator.macs(inputs, output) or 0}


# -- traces


def write_trace(
    runner: Runner, inputs: Mapping[str, Any], path: str | Path, rounds: int = TRACED_ROUNDS, name: str = "graph"
) -> Path:
    """Run a graph several times, and write when each node ran; see `events`.

    Args:
        runner: The prepared graph.
        inputs: An array for each input, by name.
        path: The file to write, usually .json.
        rounds: Number of runs after a warm-up run, which is not in the file.
        name: What the viewer calls the process.

    Returns:
        The path.

    Raises:
        CompilerError: `rounds` is invalid, or the graph cannot run on these inputs.
        OutputError: The file cannot be written.
    """
    check_output(Path(path))
    return write_events(events(runner, inputs, rounds, name), path, otherData=machine().as_dict())


def write_events(events: list[Event], path: str | Path, **more: Any) -> Path:
    """Write events, and more data beside them, to a file; return the path."""
    content = {"traceEvents": events, "displayTimeUnit": "ns", **more}
    return write_atomic(path, json.dumps(content, separators=(",", ":"), allow_nan=False).encode())


def events(runner: Runner, inputs: Mapping[str, Any], rounds: int = TRACED_ROUNDS, name: str = "graph") -> list[Event]:
    """Run a graph several times, and return the events of a trace: names of the tracks, then runs and nodes by start.

    A node's interval begins at the end of the preceding one, see `profile`. The event of a node has the
    arguments `operator`, `shape` of its first output, `bytes` of its inputs, weights and outputs; and, if it sums
    products, `macs` (multiply-accumulates, padding included) and `GFLOP/s`.

    Args:
        runner: The prepared graph.
        inputs: An array for each input, by name.
        rounds: Number of runs after a warm-up run.
        name: What the viewer calls the process.

    Raises:
        CompilerError: `rounds` is invalid, or the graph cannot run on these inputs.
    """
    check_rounds(rounds)
    shape = shapes(runner, inputs)
    names = [naming("process_name", _PROCESS, 0, name)]
    timed: list[Event] = []
    first = 0.0
    for track in range(1, rounds + 1):
        run, nodes = intervals(runner, inputs)
        first = run.start if track == 1 else first
        names.append(naming("thread_name", _PROCESS, track, f"run {track}"))
        spans = [(f"run {track}", "run", run, {"nodes": len(nodes)})]
        spans += [(n.name, n.operator.name, interval, _arguments(n, interval, shape)) for n, interval in nodes.items()]
        for label, category, interval, arguments in spans:
            # rounded to nanoseconds, so that an end is the next start
            start, end = (round(1e9 * (time - first)) for time in (interval.start, interval.end))
            timed.append(span(label, category, start / 1000, (end - start) / 1000, _PROCESS, track, arguments))
    return names + timed


def _arguments(node: Node, interval: Interval, shape: Callable[[Value], tuple[int, ...]]) -> dict[str, Any]:
    done = work(node, shape)
    values = [value for value in (*node.inputs, *node.outputs) if value is not None]
    size = sum(math.prod(shape(value)) * value.type.dtype.itemsize for value in values)
    arguments = {"operator": done["operator"], "shape": list(done["shape"]), "bytes": size}
    if done["macs"]:
        arguments["macs"] = done["macs"]
        if interval.seconds > 0:
            arguments["GFLOP/s"] = 2e-9 * done["macs"] / interval.seconds
    return arguments


def span(name: str, category: str, start: float, duration: float, process: int, track: int, arguments: Event) -> Event:
    """Return a complete event; times are in microseconds."""
    times = {"ts": start, "dur": duration}
    return {"name": name, "cat": category, "ph": "X", **times, "pid": process, "tid": track, "args": arguments}


def naming(kind: str, process: int, track: int, name: str) -> Event:
    """Return the metadata event that names a process ("process_name") or a track ("thread_name")."""
    return {"name": kind, "ph": "M", "ts": 0, "pid": process, "tid": track, "args": {"name": name}}
