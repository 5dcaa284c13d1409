"""Hostile files and graphs that the grader runs: in a limited process, and their excess is a failed check."""

from __future__ import annotations

import contextlib
import socket
from pathlib import Path

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.matrix import FullyConnected
from mlhood.grading.checks.expect import CheckFailed
from mlhood.grading.checks.oracle import graph_facts, onnx_facts
from mlhood.grading.rpc.codec import Hir, decode, encode
from mlhood.grading.rpc.limited import IsolatedCallError, IsolatedProcess
from mlhood.grading.sandbox.bubblewrap import problem

X = np.ones((3, 4), np.float32)
PARSER = IsolatedProcess(60.0)


def run_isolated(target: str, *args: object, seconds: float = 60.0) -> object:
    with contextlib.closing(IsolatedProcess(seconds)) as process:
        return process.call(target, *args)


def model(*nodes: onnx.NodeProto, **constants: list[int]) -> bytes:
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, None)],
        [helper.make_tensor(name, TensorProto.INT64, [len(data)], data) for name, data in constants.items()],
    )
    opsets = [helper.make_opsetid("", 18)]
    return helper.make_model(graph, ir_version=10, opset_imports=opsets).SerializeToString()


def filled(shape: list[int]) -> bytes:
    """A model of 300 bytes that fills an array of that shape."""
    nodes = (("ConstantOfShape", ["s"], ["c"]), ("ReduceSum", ["c"], ["d"]), ("Add", ["x", "d"], ["y"]))
    return model(*(helper.make_node(*node) for node in nodes), s=shape)


def test_a_model_that_unfolds_fails_its_check():
    assert onnx_facts(PARSER, filled([40, 40]), X, what="it").results[0].shape == (3, 4)
    with pytest.raises(CheckFailed, match=r"allocate|memory"):
        onnx_facts(PARSER, filled([40_000, 15_000]), X, what="it")
    tiled = model(helper.make_node("Tile", ["x", "s"], ["y"]), s=[1, 2_000_000])
    with pytest.raises(CheckFailed, match="exceed the limit of 72 MiB"):
        onnx_facts(PARSER, tiled, X, what="it")
    loop = model(*(helper.make_node("MatMul", [f"c{i}", f"c{i}"], [f"c{i + 1}"]) for i in range(90)), c0=[1])
    with pytest.raises(CheckFailed, match="it is not a model"):
        onnx_facts(PARSER, loop, X, what="it")


def test_a_graph_that_unfolds_fails_its_check():
    graph = Graph("large")
    x = graph.placeholder("x", TensorType("float32", ("batch", 1)))
    w = graph.constant("w", np.ones((60_000, 1), np.float32))
    graph.output(graph.add(FullyConnected(()), x, w, name="fc").outputs[0], "y")
    sent = decode(encode(graph))
    assert graph_facts(PARSER, [(sent, {"x": np.ones((2, 1), np.float32)})], what="it")[0].results["y"].shape == (
        2,
        60_000,
    )
    with pytest.raises(CheckFailed, match=r"memory|allocate"):
        graph_facts(PARSER, [(sent, {"x": np.ones((9_000, 1), np.float32)})], what="it")
    for text in ("graph of nothing", "(" * 100_000, "x" * (9 << 20)):
        with pytest.raises(CheckFailed, match="it is not a valid graph"):
            graph_facts(PARSER, [(Hir(text, {}), {})], what="it")


@pytest.mark.skipif(bool(problem()), reason="no sandbox on this machine")
def test_a_parser_under_foreign_control_reaches_nothing_of_the_grader(tmp_path):
    secret = tmp_path / "seed.txt"
    secret.write_text("4711")
    home = Path.home() / ".profile"
    for target, arguments in (("os:listdir", (str(tmp_path),)), ("os:stat", (str(secret),)), ("os:stat", (str(home),))):
        with pytest.raises(IsolatedCallError, match="No such file"):
            run_isolated(target, *arguments)
    assert run_isolated("os:getpid") < 10  # a process space of its own
    with socket.create_server(("127.0.0.1", 0)) as server, pytest.raises(IsolatedCallError, match=r"refused|reach"):
        run_isolated("socket:create_connection", list(server.getsockname()))


@pytest.mark.parametrize("sandboxed", [True, False])
def test_what_exceeds_a_limit_is_an_error_of_the_call(monkeypatch, sandboxed):
    if sandboxed and problem():
        pytest.skip("no sandbox on this machine")
    if not sandboxed:
        monkeypatch.setattr("mlhood.grading.sandbox.bubblewrap.problem", lambda: "there is none")
    assert run_isolated("builtins:sum", [1, 2]) == 3
    with pytest.raises(IsolatedCallError, match="too much memory"):
        run_isolated("numpy:ones", 3 << 27)
    with pytest.raises(IsolatedCallError, match="exceed the limit"):
        run_isolated("numpy:ones", 10 << 20)
    with pytest.raises(IsolatedCallError, match=r"takes more than 0\.2 seconds"):
        run_isolated("time:sleep", 30, seconds=0.2)
    with pytest.raises(IsolatedCallError, match="crashes"):
        run_isolated("os:abort")
    with pytest.raises(IsolatedCallError, match="crashes"):
        run_isolated("os:_exit", 0)
    with pytest.raises(IsolatedCallError, match="exceed the limit"):
        run_isolated("builtins:len", bytes(80 << 20))
