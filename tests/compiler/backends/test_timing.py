"""Execution time per node: attribution, multiply-accumulates, and invalid arguments."""

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper
from torch.utils.flop_counter import FlopCounterMode

import mlhood
from mlhood.compiler.backends import timing
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.timing import profile
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.errors import CompilerError
from mlhood.models import MobileNetV2

FLOAT = TensorProto.FLOAT


class Clock:
    """A clock that advances only by `tick`."""

    now = 0.0

    def __call__(self):
        return self.now

    def tick(self, seconds):
        self.now += seconds


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(timing, "perf_counter", clock)
    return clock


def timed_interpreter(graph, clock, monkeypatch, seconds):
    """Return an interpreter whose nodes take the given seconds: by name, one number per run."""
    interpreter = Interpreter(graph)
    for step in interpreter._steps:
        rounds = iter(seconds[step.node.name])

        def compute(*inputs, original=step.compute, rounds=rounds):
            clock.tick(next(rounds))
            return original(*inputs)

        monkeypatch.setattr(step, "compute", compute)
    return interpreter


def test_each_node_has_the_median_of_its_times(clock, monkeypatch):
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", ("n", 1, 4, 4)))
    pool = graph.add(MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True), x, name="pool")
    relu = graph.add(Relu(), pool.outputs[0], name="relu")
    graph.output(graph.add(Add(), relu.outputs[0], relu.outputs[0], name="sum").outputs[0], "y")
    graph.output(pool.outputs[1], "indices")
    seconds = {"pool": [99, 5, 1, 3], "relu": [99, 10, 30, 20], "sum": [99, 0, 0, 0]}
    interpreter = timed_interpreter(graph, clock, monkeypatch, seconds)
    frame = profile(interpreter, {"x": np.zeros((3, 1, 4, 4), np.float32)}, rounds=3)
    assert frame["seconds"].to_dict() == {"pool": 3, "relu": 20, "sum": 0}
    assert frame["operator"].to_dict() == {"pool": "MaxPool", "relu": "Relu", "sum": "Add"}
    assert frame["shape"].tolist() == [(3, 1, 2, 2)] * 3
    assert frame["macs"].tolist() == [0, 0, 0]


def test_macs_are_half_of_the_operations_that_torch_counts(mobilenet_onnx):
    images = np.zeros((2, 3, 64, 64), np.float32)
    with FlopCounterMode(display=False) as counter:
        MobileNetV2(10, 0.25).eval()(torch.from_numpy(images))
    frame = mlhood.compile(mobilenet_onnx).profile(image=images, rounds=1)
    assert 2 * frame["macs"].sum() == counter.get_total_flops()
    assert (frame["seconds"] > 0).all()


@pytest.mark.parametrize(
    ("node", "shapes", "macs"),
    [
        (helper.make_node("MatMul", ["x", "w"], ["y"]), [(5, 2, 3), (3, 7)], 5 * 2 * 7 * 3),
        (helper.make_node("MatMul", ["x", "w"], ["y"]), [(3,), (3, 7)], 7 * 3),
        (helper.make_node("Gemm", ["x", "w"], ["y"]), [(2, 3), (3, 7)], 2 * 7 * 3),
        (helper.make_node("Gemm", ["x", "w"], ["y"], transA=1, transB=1), [(3, 2), (7, 3)], 2 * 7 * 3),
        (helper.make_node("ConvTranspose", ["x", "w"], ["y"], strides=[2, 2]), [(1, 4, 5, 5), (4, 3, 2, 2)], 100 * 12),
        (helper.make_node("Mul", ["x", "w"], ["y"]), [(2, 3), (2, 3)], 0),
    ],
    ids=["MatMul", "MatMul of a vector", "Gemm", "Gemm, transposed", "ConvTranspose", "Mul"],
)
def test_multiply_accumulates(new_model, node, shapes, macs):
    x, w = (np.ones(shape, np.float32) for shape in shapes)
    graph = import_model(new_model([node], {"x": (FLOAT, x.shape), "w": (FLOAT, w.shape)}))
    assert profile(Interpreter(graph), {"x": x, "w": w}, rounds=1)["macs"].tolist() == [macs]


@pytest.mark.parametrize(
    ("inputs", "rounds", "message"),
    [
        ({"x": np.zeros(2, np.float32)}, 0, "invalid number of rounds"),
        ({"x": np.zeros(2, np.float32)}, 1.5, "invalid number of rounds"),
        ({"z": np.zeros(2, np.float32)}, 1, "do not match the graph's"),
        ([np.zeros(2, np.float32)], 1, "must be given by name"),
    ],
)
def test_invalid_arguments_raise(inputs, rounds, message):
    graph = Graph()
    graph.output(graph.add(Relu(), graph.placeholder("x", TensorType("float32", (2,)))).outputs[0])
    with pytest.raises(CompilerError, match=message):
        profile(Interpreter(graph), inputs, rounds)


@pytest.mark.parametrize("target", ["interpreter", "direct"])
def test_the_profile_of_a_compiled_model(new_model, target):
    nodes = [helper.make_node("Conv", ["x", "w"], ["c"], "conv"), helper.make_node("LeakyRelu", ["c"], ["y"], "relu")]
    model = new_model(nodes, {"x": (FLOAT, ["n", 2, 6, 6])}, {"w": np.ones((3, 2, 3, 3), np.float32)})
    frame = mlhood.compile(model, target=target).profile(x=np.ones((1, 2, 6, 6), np.float32), rounds=2)
    assert frame.loc["conv", "macs"] == 3 * 4 * 4 * 2 * 9
    assert list(frame.columns) == ["operator", "shape", "macs", "seconds"]
