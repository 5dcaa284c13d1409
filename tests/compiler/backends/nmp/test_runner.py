"""The target "nmp": the interpreter's results, whatever part of a network the neural processor can run."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch import nn

from mlhood.compiler.analysis.debugger import compare
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.nmp import partition
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.backends.nmp.partition import CPU, NMP
from mlhood.compiler.backends.nmp.runner import Heterogeneous
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.quantize import Recipe
from mlhood.errors import CompilerError
from mlhood.exchange import export


class Residual(nn.Module):
    """Convolutions around something in the middle, with a branch past it."""

    def __init__(self, middle: nn.Module) -> None:
        super().__init__()
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.middle = middle
        self.last = nn.Conv2d(8, 4, 1)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        a = torch.relu(self.first(x))
        b = torch.relu(a + self.second(a))
        return self.last(b + self.middle(b))


class ChannelSoftmax(nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return torch.softmax(x, 1)


SHAPE = (3, 12, 12)


@pytest.fixture
def slow_host(monkeypatch):
    """What the neural processor supports runs there."""
    monkeypatch.setattr(partition, "HOST", partition.Host(node_seconds=1.0))


def quantized(tmp_path, model: nn.Module, element="int8", shape=SHAPE, batch: int | None = 1):
    torch.manual_seed(0)
    path = export(model.eval(), torch.zeros(2, *shape), tmp_path / "model.onnx")
    rng = np.random.default_rng(0)
    data = {"image": rng.normal(size=(8, *shape)).astype(np.float32)}
    dims = {} if batch is None else {"batch": batch}
    return compile_model(
        path, quantization=Recipe("power_of_two", element=element), stop_after="quantized", calibration=data, dims=dims
    )


@pytest.mark.parametrize("element", ["int8", pytest.param("int16", marks=pytest.mark.exhaustive)])
@pytest.mark.parametrize(
    "middle",
    [nn.Identity(), nn.Sigmoid(), nn.LeakyReLU(0.3), ChannelSoftmax(), nn.AvgPool2d(3, 1, 1), nn.MaxPool2d(3, 1, 1)],
)
@pytest.mark.usefixtures("slow_host")
def test_an_operator_that_it_lacks_in_the_middle(tmp_path, middle, element):
    graph = quantized(tmp_path, Residual(middle), element)
    runner = Heterogeneous(graph)
    x = np.random.default_rng(1).normal(size=(1, 3, 12, 12)).astype(np.float32)
    expected = Interpreter(graph).run({"image": x})
    actual = runner.run({"image": x})
    np.testing.assert_array_equal(actual["logits"], expected["logits"])
    assert len(runner.plan({}).partition.on(NMP)) >= 4


def test_both_devices_take_part(tmp_path):
    graph = quantized(tmp_path, Residual(ChannelSoftmax()), shape=(3, 64, 64))
    plan = Heterogeneous(graph).plan({})
    assert {node.operator.name for node in plan.partition.on(NMP)} >= {"QuantizedConv"}
    assert {node.operator.name for node in plan.partition.on(CPU)} >= {"Quantize", "Dequantize", "Softmax"}
    assert len(plan.programs) == [device for device, _ in plan.parts].count(NMP) >= 1


@pytest.mark.usefixtures("slow_host")
def test_any_batch(tmp_path):
    graph = quantized(tmp_path, Residual(nn.Sigmoid()), batch=None)
    runner = Heterogeneous(graph)
    for batch in (1, 3):
        x = np.random.default_rng(batch).normal(size=(batch, 3, 12, 12)).astype(np.float32)
        expected = Interpreter(graph).run({"image": x})["logits"]
        np.testing.assert_array_equal(runner.run({"image": x})["logits"], expected)


@pytest.mark.usefixtures("slow_host")
def test_a_machine_of_one_tilelet(tmp_path):
    machine = replace(default_machine(), name="one", tiles=1, tilelets=1, blob_bytes=1024)
    graph = quantized(tmp_path, Residual(nn.Identity()))
    x = np.random.default_rng(1).normal(size=(1, 3, 12, 12)).astype(np.float32)
    expected = Interpreter(graph).run({"image": x})["logits"]
    np.testing.assert_array_equal(Heterogeneous(graph, machine).run({"image": x})["logits"], expected)


@pytest.mark.usefixtures("slow_host")
def test_the_debugger_finds_no_difference(tmp_path):
    graph = quantized(tmp_path, Residual(nn.Sigmoid()))
    x = np.random.default_rng(1).normal(size=(1, 3, 12, 12)).astype(np.float32)
    assert compare(graph, Heterogeneous(graph), {"image": x}).agrees


@pytest.mark.parametrize("recipe", [None, Recipe("asymmetric")])
def test_a_graph_of_which_it_can_run_nothing(tmp_path, recipe):
    path = export(nn.Conv2d(3, 4, 3).eval(), torch.zeros(1, 3, 8, 8), tmp_path / "model.onnx")
    data = {"image": np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)}
    with pytest.raises(CompilerError, match="can run no node") as error:
        compile_model(path, "nmp", recipe, calibration=data)
    assert "power_of_two" in str(error.value)


def test_the_target_by_name(tmp_path):
    path = export(nn.Conv2d(3, 4, 3).eval(), torch.zeros(1, 3, 8, 8), tmp_path / "model.onnx")
    data = {"image": np.random.default_rng(0).normal(size=(4, 3, 8, 8)).astype(np.float32)}
    recipe = Recipe("power_of_two")
    results = [
        compile_model(path, target, recipe, calibration=data).run(image=data["image"])["logits"]
        for target in ("nmp", "interpreter")
    ]
    np.testing.assert_array_equal(*results)


def test_the_dispatch_table_gives_reasons(tmp_path):
    graph = quantized(tmp_path, Residual(ChannelSoftmax()))
    table = Heterogeneous(graph).plan({}).partition.table()
    assert table.loc["first", "on the NMP"] == "conv"
    assert "no instruction for this operator" in table[table.operator == "Softmax"]["on the NMP"].iloc[0]
