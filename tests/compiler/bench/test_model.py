"""The benchmark of whole models: its columns, its checks of the outputs, and its command; no time is asserted."""

import json
import os
from unittest.mock import patch

import numpy as np
import pytest
from typer.testing import CliRunner

from mlhood.cli import app
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.bench import model
from mlhood.compiler.bench.model import NETWORKS, OURS, macs, measure
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.hir import Graph
from mlhood.errors import CompilerError, MeasureError
from mlhood.models.transformers import Config, gpt2

PEAK = 1e11


@pytest.fixture
def no_processes(monkeypatch):
    """Do not time compilation in new processes."""
    times = {"cold": 2.0, "cached": 1.0}
    monkeypatch.setattr(model, "compile_times", lambda path, target, batch: times)


@pytest.fixture(scope="module")
def command(tmp_path_factory):
    """Return the output of the command, and the file that it writes."""
    path = tmp_path_factory.mktemp("bench") / "lenet.json"
    with patch.dict(os.environ):  # the command sets the libraries' threads
        result = CliRunner().invoke(app, ["bench", "model", "lenet", "--int8", "--batch", "2", "--json", str(path)])
    assert result.exit_code == 0, result.exception
    return result.output, json.loads(path.read_text(encoding="utf-8"))


def test_the_command_writes_rows_and_the_machine(command):
    _, data = command
    assert data["bench"] == "model"
    assert data["machine"]["cpu"]
    assert data["peak_flops"] > 0
    (row,) = data["rows"]
    assert (row["model"], row["batch"], row["threads"], row["ours"], row["rounds"]) == ("lenet", 2, 1, OURS, 21)
    names = {"onnxruntime", "torch", OURS, f"{OURS} int8", "onnxruntime int8"}
    assert names <= row["seconds"].keys()
    refused = [note for note in row["notes"] if note.startswith("torch inductor cannot run it: ")]
    assert len(refused) == ("torch inductor" not in row["seconds"])  # it needs a C++ compiler
    assert row["seconds"].keys() == row["gflops"].keys() == row["share_of_peak"].keys() == row["quartiles"].keys()
    assert row["ratios"].keys() == row["seconds"].keys() - {OURS}
    assert all(0 < r["low"] <= r["value"] <= r["high"] for r in row["ratios"].values())
    assert row["flops"] == 2 * 2 * 416_520  # multiply-accumulates of LeNet: 117,600 + 240,000 + 58,920
    rate = row["flops"] / row["seconds"]["torch"]
    assert row["gflops"]["torch"] == pytest.approx(rate / 1e9)
    assert row["share_of_peak"]["torch"] == pytest.approx(rate / data["peak_flops"])
    assert row["nodes"]["hir"] > row["nodes"]["optimized"] > 0
    assert row["constant_bytes"][OURS] == 4 * 61_706
    assert row["constant_bytes"][f"{OURS} int8"] < 0.5 * row["constant_bytes"][OURS]
    assert row["compile_seconds"].keys() == {"cold", "cached"}
    assert all(seconds > 0 for seconds in row["compile_seconds"].values())
    assert row["sqnr"].keys() == {f"{OURS} int8", "onnxruntime int8"}
    assert row["moved_bytes"].keys() == row["share_of_bandwidth"].keys() == {OURS, f"{OURS} int8"}
    assert 4 * 61_706 < row["moved_bytes"][OURS] < 10 * 61_706  # the weights, and activations of two images
    assert row["moved_bytes"][f"{OURS} int8"] < row["moved_bytes"][OURS]
    rate = row["moved_bytes"][OURS] / row["seconds"][OURS]
    assert row["share_of_bandwidth"][OURS] == pytest.approx(rate / data["bandwidth"]["bytes_per_second"])


def test_the_command_prints_a_table(command):
    output, data = command
    (row,) = data["rows"]
    for name, ratio in row["ratios"].items():
        (line,) = (line for line in output.splitlines() if line.startswith(f"  {name:22} "))
        assert f"{1e3 * row['seconds'][name]:.3f} ms" in line
        assert f"{ratio['value']:.2f} [{ratio['low']:.2f}, {ratio['high']:.2f}]" in line
    assert "lenet, batch 2" in output
    assert "median" in output


class Wrong(Interpreter):
    """The interpreter, with one wrong output element."""

    def run(self, inputs, observe=None):
        results = super().run(inputs, observe)
        return {name: y + (np.arange(y.size).reshape(y.shape) == 3) for name, y in results.items()}


class Telling(Interpreter):
    """The interpreter, with a made-up size of its activations."""

    activation_bytes = 3 * 2**20


def refuse(graph):
    raise CompilerError("no such operator on this target", where="node 'conv1' (Conv)")


def test_a_wrong_target_is_not_timed(monkeypatch, no_processes):
    monkeypatch.setitem(TARGETS, "wrong", Wrong)
    with pytest.raises(MeasureError, match="disagree") as caught:
        list(measure(["lenet"], peak=PEAK, targets=("wrong",)))
    assert "'wrong' against 'onnxruntime'" in str(caught.value)


def test_what_targets_tell_and_refuse_is_in_the_row(monkeypatch, no_processes):
    monkeypatch.setitem(TARGETS, "telling", Telling)
    monkeypatch.setitem(TARGETS, "refusing", refuse)
    (row,) = measure(["lenet"], peak=PEAK, targets=("telling", "refusing"))
    assert row.activations == {"telling": 3 * 2**20}
    assert "3.00 MiB" in str(row)
    assert row.as_dict()["share_of_bandwidth"] == {}
    assert "refusing refuses: no such operator on this target" in str(row)
    assert "refusing" not in row.result.measurements
    with pytest.raises(CompilerError, match="no such operator"):
        list(measure(["lenet"], peak=PEAK, targets=("refusing", "telling")))


def test_a_decode_step_is_timed(monkeypatch, no_processes):
    small = Config(2, 64, 2, packed=True, gelu="tanh")
    monkeypatch.setitem(NETWORKS, "decode", model.Network(lambda: gpt2(small, 60, 40), (1, 5), ()))
    (row,) = measure(["decode"], peak=PEAK, batch=2)
    assert {"cpu", "onnxruntime", "torch"} <= row.result.measurements.keys()
    assert row.flops > 2 * 2 * 12 * 64 * 64 * 2  # of the layers' products alone


def test_a_bad_approximation_is_not_timed():
    expected = np.array([1.0, 2, 3])
    with pytest.raises(MeasureError, match="does not approximate"):
        model.qualities(expected, {"int8": lambda: -expected})
    assert model.qualities(expected, {"int8": lambda: 1.01 * expected})["int8"] == pytest.approx(40)


def test_multiply_accumulates_of_lenet(lenet_onnx):
    graph = compile_model(lenet_onnx, stop_after="optimized")
    assert isinstance(graph, Graph)
    assert macs(graph, {"batch": 3}) == 3 * (28**2 * 6 * 25 + 10**2 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10)


def test_invalid_arguments_raise(no_processes):
    with pytest.raises(CompilerError, match="unknown network") as caught:
        list(measure(["alexnet"], peak=PEAK))
    assert all(name in str(caught.value) for name in NETWORKS)
    with pytest.raises(MeasureError, match="too few rounds"):
        list(measure(["lenet"], peak=PEAK, rounds=20))
