"""Exporting: silent, deterministic, self-contained, numerically correct, and without paths of this machine."""

import logging
import os
import subprocess
import sys
import warnings
from collections import Counter

import numpy as np
import onnx
import pytest
import torch

from mlhood.errors import ExchangeError, OutputError
from mlhood.exchange import export, load, run
from mlhood.models import MLP, LeNet, LeNetBN, digits, resnet18

IMAGE = torch.zeros(1, 1, 32, 32)
LENET_NODES = ["conv1", "relu", "maxpool", "conv2", "relu_1", "maxpool_1", "reshape"]
LENET_NODES += ["fc1", "relu_2", "fc2", "relu_3", "fc3"]

EXPORT = "import sys; from tests.exchange.test_export import write; write(sys.argv[1])"


def operators(path) -> Counter[str]:
    return Counter(node.op_type for node in onnx.load(path).graph.node)


def write(path: str) -> None:
    torch.manual_seed(0)
    export(LeNetBN(), IMAGE, path, keep_batchnorm=True)


def test_names_shapes_and_opset(lenet_onnx):
    model = onnx.load(lenet_onnx)
    onnx.checker.check_model(model, full_check=True)
    assert [node.name for node in model.graph.node] == LENET_NODES
    values = {value.name: value.type.tensor_type.shape.dim for value in (*model.graph.input, *model.graph.output)}
    shapes = {name: [axis.dim_param or axis.dim_value for axis in axes] for name, axes in values.items()}
    assert shapes == {"image": ["batch", 1, 32, 32], "logits": ["batch", 10]}
    assert model.opset_import[0].version == 20


def test_agrees_with_torch_on_real_digits(lenet, lenet_onnx):
    images = digits(mnist="").test_images
    expected = lenet(torch.tensor(images)).detach().numpy()
    np.testing.assert_allclose(run(lenet_onnx, images)["logits"], expected, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize("keep", [False, True])
def test_batchnorm_is_folded_or_kept(lenet_bn, tmp_path, keep):
    path = export(lenet_bn, IMAGE, tmp_path / "bn.onnx", keep_batchnorm=keep)
    counts = {"Relu": 4, "Gemm": 3, "Conv": 2, "MaxPool": 2, "Reshape": 1} | ({"BatchNormalization": 2} if keep else {})
    assert operators(path) == counts
    x = np.random.default_rng(0).normal(size=(3, 1, 32, 32)).astype(np.float32)
    expected = lenet_bn(torch.tensor(x)).detach().numpy()
    np.testing.assert_allclose(run(path, x)["logits"], expected, rtol=1e-4, atol=1e-5)


def test_resnet_keeps_its_twenty_batchnorms_and_nothing_else(tmp_path):
    torch.manual_seed(0)
    model = resnet18(classes=5).eval()
    path = export(model, torch.zeros(1, 3, 64, 64), tmp_path / "resnet.onnx", keep_batchnorm=True)
    assert operators(path) == {
        "BatchNormalization": 20,
        "Conv": 20,
        "Relu": 17,
        "Add": 8,
        "Gemm": 1,
        "MaxPool": 1,
        "ReduceMean": 1,
        "Reshape": 1,
    }
    nodes = {node.name: node for node in onnx.load(path).graph.node}
    assert {"layer1.0.conv1", "layer2.0.downsample.1", "layer4.1.add", "avgpool", "fc"} <= set(nodes)
    assert len(nodes) == len(onnx.load(path).graph.node)
    assert len(nodes["layer1.0.conv1"].input) == 2  # no bias added
    x = torch.randn(2, 3, 64, 64)
    np.testing.assert_allclose(run(path, x)["logits"], model(x).detach().numpy(), rtol=1e-3, atol=1e-4)


def test_same_bytes_from_two_processes(tmp_path):
    write(str(tmp_path / "a"))
    # The iteration order of sets must not affect the file.
    environment = os.environ | {"PYTHONHASHSEED": "1"}
    command = [sys.executable, "-W", "error", "-c", EXPORT, str(tmp_path / "b")]
    result = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
    assert (result.returncode, result.stdout, result.stderr) == (0, "", "")
    assert (tmp_path / "a").read_bytes() == (tmp_path / "b").read_bytes()


def test_export_is_silent_restores_logging_and_gives_the_same_bytes(lenet, lenet_onnx, tmp_path, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    caplog.clear()
    handlers, disabled = list(logging.root.handlers), logging.root.manager.disable
    with warnings.catch_warnings(record=True) as caught_warnings:
        warnings.simplefilter("always")
        again = export(lenet, torch.ones(4, 1, 32, 32), tmp_path / "x.onnx")
    assert capfd.readouterr() == ("", "")
    assert not caught_warnings
    assert not caplog.records
    assert (logging.root.handlers, logging.root.manager.disable) == (handlers, disabled)
    assert again.read_bytes() == lenet_onnx.read_bytes()


def test_one_file_without_paths_of_this_machine(lenet_onnx):
    assert [file.name for file in lenet_onnx.parent.iterdir()] == ["lenet.onnx"]
    data = lenet_onnx.read_bytes()
    for text in (b"site-packages", b".py", b"File ", b"metadata", b"pkg.torch", str(lenet_onnx.parent).encode()):
        assert text not in data


def test_modes_are_restored(tmp_path):
    model = torch.nn.Sequential(torch.nn.Linear(4, 4), torch.nn.Dropout(), torch.nn.Linear(4, 2))
    model[1].eval()
    path = export(model, torch.zeros(1, 4), tmp_path / "x.onnx")
    assert [module.training for module in model] == [True, False, True]
    assert set(operators(path)) == {"Gemm"}  # no dropout: exported in evaluation mode


def test_a_fixed_batch(lenet, tmp_path):
    path = export(lenet, torch.zeros(3, 1, 32, 32), tmp_path / "x.onnx", dynamic_batch=False)
    assert run(path, np.zeros((3, 1, 32, 32), np.float32))["logits"].shape == (3, 10)
    with pytest.raises(ExchangeError, match="wrong shape"):
        run(path, np.zeros((4, 1, 32, 32), np.float32))


def test_several_inputs_and_outputs(tmp_path):
    class Two(torch.nn.Module):
        def forward(self, a, b):
            return a + b, a * b

    x = np.arange(6, dtype=np.float32).reshape(2, 3)
    path = export(Two(), (x, x), tmp_path / "x.onnx", input_names=("a", "b"), output_names=("plus", "times"))
    outputs = run(path, a=x, b=2 * x)
    np.testing.assert_array_equal(outputs["plus"], 3 * x)
    np.testing.assert_array_equal(outputs["times"], 2 * x * x)


@pytest.mark.parametrize("opset", [18, 23])
def test_opsets(tmp_path, opset):
    model = load(export(MLP(), torch.zeros(1, 784), tmp_path / "x.onnx", opset=opset))
    assert model.opset_import[0].version == opset


class OneImageOnly(LeNet):
    def forward(self, x):
        return super().forward(x).view(1, 10)


class Branching(LeNet):
    def forward(self, x):
        return super().forward(x) if x.sum() > 0 else x


@pytest.mark.parametrize("model", [OneImageOnly(), Branching(), MLP()], ids=["one image only", "branching", "MLP"])
def test_a_failed_export_raises_and_leaves_no_file(tmp_path, capfd, model):
    with pytest.raises(ExchangeError) as caught:
        export(model, IMAGE, tmp_path / "x.onnx")
    assert caught.value.parts
    assert not list(tmp_path.iterdir())
    assert capfd.readouterr() == ("", "")


def test_a_missing_folder_raises(tmp_path):
    with pytest.raises(OutputError, match="does not exist"):
        export(LeNet(), IMAGE, tmp_path / "nowhere" / "x.onnx")
