"""Some runs of a graph as a file for a trace viewer: Perfetto (ui.perfetto.dev), or chrome://tracing.

The format is JSON in Google's Trace Event Format: complete events, "ph" "X", with start and duration in microseconds.
A viewer nests events of one track by containment, so that a run encloses its nodes. Each run has its own track.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from mlhood.compiler.backends.targets import Runner
from mlhood.compiler.backends.timing import Interval, check_rounds, intervals, shapes, work
from mlhood.compiler.hir.values import Node, Value
from mlhood.files.atomic import check_output, write_atomic
from mlhood.measure import machine

ROUNDS = 5
_PROCESS = 1  # all tracks belong to one process, whose number is arbitrary

Event = dict[str, Any]


def write_trace(
    runner: Runner, inputs: Mapping[str, Any], path: str | Path, rounds: int = ROUNDS, name: str = "graph"
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


def events(runner: Runner, inputs: Mapping[str, Any], rounds: int = ROUNDS, name: str = "graph") -> list[Event]:
    """Run a graph several times, and return the events of a trace: names of the tracks, then runs and nodes by start.

    A node's interval begins at the end of the preceding one, see `timing.profile`. The event of a node has the
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
