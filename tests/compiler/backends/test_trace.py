"""Traces follow the rules of the Trace Event Format, and say of each node what it did."""

import itertools
import json

import numpy as np
import pytest
from onnx import TensorProto, helper
from typer.testing import CliRunner

import mlhood
from mlhood.cli import app
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.timing import events
from mlhood.compiler.compile import Executable
from mlhood.compiler.hir import Graph
from mlhood.errors import CompilerError, OutputError

NAMES = {"process_name", "thread_name"}


def read(path):
    """Read a trace, and check what the format requires of each event."""
    content = json.loads(path.read_text(encoding="utf-8"))
    assert content["displayTimeUnit"] in ("ms", "ns")
    assert isinstance(content["otherData"], dict)
    for event in content["traceEvents"]:
        assert {"name", "ph", "ts", "pid", "tid", "args"} <= event.keys()
        assert all(isinstance(event[key], str) and event[key] for key in ("name", "ph"))
        assert all(isinstance(event[key], int) for key in ("pid", "tid"))
        if event["ph"] == "M":
            assert event["name"] in NAMES
            assert isinstance(event["args"]["name"], str)
        else:
            assert event["ph"] == "X"
            assert event["ts"] >= 0
            assert event["dur"] >= 0
            assert event["cat"]
    return content["traceEvents"]


def nanoseconds(event):
    return round(1000 * event["ts"]), round(1000 * event["ts"]) + round(1000 * event["dur"])


def assert_nested(track):
    """Check that events are sorted, and that each is within those that have not ended when it starts."""
    open_ends = []
    starts = [nanoseconds(event)[0] for event in track]
    assert starts == sorted(starts)
    for event in track:
        start, end = nanoseconds(event)
        while open_ends and open_ends[-1] <= start:
            open_ends.pop()
        assert not open_ends or end <= open_ends[-1]
        open_ends.append(end)


@pytest.fixture(scope="module")
def inputs():
    return {"image": np.random.default_rng(0).standard_normal((2, 1, 32, 32), np.float32)}


@pytest.mark.parametrize("target", ["interpreter", "direct"])
def test_a_trace_is_valid_and_complete(lenet_onnx, inputs, target, tmp_path):
    compiled = mlhood.compile(lenet_onnx, target=target)
    assert isinstance(compiled, Executable)
    written = compiled.trace(tmp_path / "trace.json", rounds=3, **inputs)
    trace = read(written)
    tracks = {event["tid"]: event["args"]["name"] for event in trace if event["name"] == "thread_name"}
    assert tracks == {1: "run 1", 2: "run 2", 3: "run 3"}
    timed = [event for event in trace if event["ph"] == "X"]
    assert trace[-len(timed) :] == timed
    nodes = [node.name for node in compiled.graph.topological()]
    for number in tracks:
        track = [event for event in timed if event["tid"] == number]
        assert_nested(track)
        run, *parts = track
        assert run["name"] == f"run {number}"
        assert [event["name"] for event in parts] == nodes
        assert nanoseconds(run)[0] <= nanoseconds(parts[0])[0]
        assert nanoseconds(parts[-1])[1] <= nanoseconds(run)[1]
        assert all(nanoseconds(a)[1] == nanoseconds(b)[0] for a, b in itertools.pairwise(parts))
    frame = compiled.profile(rounds=1, **inputs)
    for event in (event for event in timed if event["cat"] != "run"):
        row = frame.loc[event["name"]]
        assert event["cat"] == event["args"]["operator"] == row["operator"]
        assert event["args"]["shape"] == list(row["shape"])
        assert event["args"].get("macs", 0) == row["macs"]
        if row["macs"]:
            assert event["args"]["GFLOP/s"] == pytest.approx(2e-3 * row["macs"] / event["dur"], rel=1e-2)


def test_bytes_are_those_of_inputs_weights_and_outputs(new_model):
    node = helper.make_node("MatMul", ["x", "w"], ["y"], "product")
    model = new_model([node], {"x": (TensorProto.FLOAT, ["n", 3])}, {"w": np.ones((3, 5), np.float32)})
    graph = mlhood.compile(model, stop_after="hir")
    assert isinstance(graph, Graph)
    (event,) = (e for e in events(Interpreter(graph), {"x": np.ones((7, 3), np.float32)}, 1) if e["name"] == "product")
    assert event["args"]["bytes"] == 4 * (7 * 3 + 3 * 5 + 7 * 5)
    assert event["args"]["macs"] == 7 * 3 * 5


def test_invalid_arguments_raise(lenet_onnx, inputs, tmp_path):
    compiled = mlhood.compile(lenet_onnx)
    assert isinstance(compiled, Executable)
    with pytest.raises(CompilerError, match="invalid number of rounds"):
        compiled.trace(tmp_path / "trace.json", rounds=0, **inputs)
    with pytest.raises(CompilerError, match="do not match the graph's"):
        compiled.trace(tmp_path / "trace.json", photo=inputs["image"])
    with pytest.raises(OutputError):
        compiled.trace(tmp_path / "missing" / "trace.json", **inputs)
    assert not list(tmp_path.iterdir())


def test_the_command_writes_a_trace(lenet_onnx, tmp_path):
    def command(*options):
        return CliRunner().invoke(app, ["compile", str(lenet_onnx), *map(str, options)])

    path = tmp_path / "lenet.json"
    result = command("--target", "direct", "--trace", path, "--dim", "batch=4")
    assert result.exit_code == 0, result.output
    assert f"wrote {path}" in result.output
    conv = next(event for event in read(path) if event["name"] == "conv1")
    assert conv["args"]["shape"][0] == 4
    assert "unknown target" in str(command("--target", "gpu").exception)
    assert "not a program" in str(command("--trace", path, "--stop-after", "lir").exception)
    assert isinstance(command("--trace", tmp_path / "missing" / "a.json").exception, OutputError)
