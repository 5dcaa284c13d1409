"""Tables of a graph, against torch's own counts."""

import math

import numpy as np
import pandas as pd
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper
from torch.utils.flop_counter import FlopCounterMode

from mlhood.errors import ExchangeError
from mlhood.exchange import export, node_table, operator_counts
from mlhood.models import MLP, resnet50


def flops(model, *inputs):
    with FlopCounterMode(display=False) as counter:
        model(*inputs)
    return counter.get_total_flops()


def test_operator_counts(lenet_onnx):
    counts = operator_counts(lenet_onnx)
    assert list(counts.items()) == [("Relu", 4), ("Gemm", 3), ("Conv", 2), ("MaxPool", 2), ("Reshape", 1)]
    assert isinstance(counts, pd.Series)


def test_lenet_by_hand(lenet_onnx):
    table = node_table(lenet_onnx).set_index("name")
    macs = table.loc[table["macs"] > 0, "macs"].to_dict()
    assert macs == {"conv1": 117_600, "conv2": 240_000, "fc1": 48_000, "fc2": 10_080, "fc3": 840}
    parameters = table.loc[table["parameters"] > 0, "parameters"].to_dict()
    assert parameters == {"conv1": 156, "conv2": 2416, "fc1": 48_120, "fc2": 10_164, "fc3": 850}
    assert table["parameter_bytes"].sum() == 61_706 * 4
    assert table.loc["conv1", "inputs"] == [("batch", 1, 32, 32)]
    assert table.loc["conv1", "outputs"] == [("batch", 6, 28, 28)]
    assert table.loc["conv1", "output_bytes"] == 6 * 28 * 28 * 4
    assert table.loc["reshape", "outputs"] == [("batch", 400)]


@pytest.mark.parametrize("batch", [1, 7])
def test_lenet_matches_torchs_counter(lenet, lenet_onnx, batch):
    table = node_table(lenet_onnx, batch=batch)
    assert 2 * table["macs"].sum() == flops(lenet, torch.zeros(batch, 1, 32, 32))
    assert table["inputs"][0] == [(batch, 1, 32, 32)]
    assert table["outputs"].iloc[-1] == [(batch, 10)]
    assert table["output_bytes"].sum() == batch * node_table(lenet_onnx)["output_bytes"].sum()


def test_a_tensorflow_lenet_has_the_same_work(tf_lenet, lenet_onnx):
    table = node_table(tf_lenet, unk__1=2)
    assert table["macs"].sum() == node_table(lenet_onnx, batch=2)["macs"].sum()
    assert table["parameters"].sum() == 61_706
    assert table["inputs"][0] == [(2, 32, 32, 1)]
    assert node_table(tf_lenet)["inputs"][0] == [("unk__1", 32, 32, 1)]


def test_resnet50_has_the_published_four_billion_macs(tmp_path):
    model = resnet50().eval()
    path = export(model, torch.zeros(1, 3, 224, 224), tmp_path / "resnet50.onnx", keep_batchnorm=True)
    table = node_table(path)
    assert table["macs"].sum() == pytest.approx(4.09e9, rel=0.001)
    statistics = sum(buffer.numel() for name, buffer in model.named_buffers() if "running" in name)
    assert table["parameters"].sum() == 25_557_032 + statistics
    with torch.device("meta"):
        meta = resnet50().eval()
    assert 2 * table["macs"].sum() == flops(meta, torch.zeros(1, 3, 224, 224, device="meta"))


@settings(max_examples=40)
@given(
    batch=st.integers(1, 3),
    groups=st.integers(1, 3),
    channels=st.integers(1, 3),
    filters=st.integers(1, 3),
    kernel=st.integers(1, 3),
    stride=st.integers(1, 2),
    padding=st.integers(0, 2),
    size=st.integers(3, 9),
)
def test_any_convolution_matches_torchs_counter(batch, groups, channels, filters, kernel, stride, padding, size):
    layer = torch.nn.Conv2d(groups * channels, groups * filters, kernel, stride, padding, groups=groups)
    x = torch.zeros(batch, groups * channels, size, size)
    values = [helper.make_tensor_value_info("x", TensorProto.FLOAT, list(x.shape))]
    attributes = {"strides": [stride] * 2, "pads": [padding] * 4, "group": groups}
    graph = helper.make_graph(
        [helper.make_node("Conv", ["x", "w", "b"], ["y"], **attributes)],
        "g",
        values,
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, list(layer(x).shape))],
        [
            numpy_helper.from_array(value.detach().numpy(), name)
            for name, value in zip("wb", layer.parameters(), strict=True)
        ],
    )
    (row,) = node_table(model(graph)).to_dict("records")
    assert 2 * row["macs"] == flops(layer, x)
    assert row["parameters"] == sum(parameter.numel() for parameter in layer.parameters())
    assert row["output_bytes"] == layer(x).nbytes
    assert row["name"] == "y"  # an unnamed node is listed under its output's name


def model(graph):
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize(
    ("left", "right", "attributes"),
    [
        ((5, 7), (7, 3), {}),
        ((7, 5), (7, 3), {"transA": 1}),
        ((5, 7), (3, 7), {"transB": 1}),
        ((7, 5), (3, 7), {"transA": 1, "transB": 1}),
    ],
)
def test_gemm_in_all_its_forms(left, right, attributes):
    graph = binary("Gemm", left, right, 2, **attributes)
    assert node_table(graph)["macs"].tolist() == [5 * 7 * 3]


@pytest.mark.parametrize(
    ("left", "right"), [((5, 7), (7, 3)), ((2, 5, 7), (7, 3)), ((2, 1, 5, 7), (4, 7, 3)), ((7,), (7,))]
)
def test_matmul_as_numpy_broadcasts_it(left, right):
    product = np.matmul(np.zeros(left), np.zeros(right))
    table = node_table(binary("MatMul", left, right, product.ndim))
    assert table["macs"].tolist() == [math.prod(product.shape) * 7]


def binary(op, left, right, rank, **attributes):
    inputs = [
        helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name, shape in (("a", left), ("b", right))
    ]
    output = helper.make_tensor_value_info("c", TensorProto.FLOAT, [None] * rank)
    node = helper.make_node(op, ["a", "b"], ["c"], **attributes)
    return model(helper.make_graph([node], "g", inputs, [output]))


def test_a_shared_weight_counts_once(tmp_path):
    class Tied(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.fc = torch.nn.Linear(8, 8)

        def forward(self, x):
            return self.fc(torch.relu(self.fc(x)))

    table = node_table(export(Tied(), torch.zeros(1, 8), tmp_path / "x.onnx"))
    assert table["parameters"].tolist() == [72, 0, 0]
    assert table["macs"].tolist() == [64, 0, 64]


def test_unknown_shapes_show_as_unknown():
    graph = helper.make_graph(
        [
            helper.make_node("NonZero", ["x"], ["i"]),
            helper.make_node("Cast", ["i"], ["y"], to=TensorProto.FLOAT),
        ],
        "g",
        [helper.make_tensor_value_info("x", TensorProto.FLOAT, ["n", 4])],
        [helper.make_tensor_value_info("y", TensorProto.FLOAT, [2, "m"])],
    )
    table = node_table(model(graph), n=3)
    assert table["outputs"].tolist() == [[(2, "?")], [(2, "m")]]


@pytest.mark.parametrize("dims", [{"bach": 2}, {"batch": 0}, {"batch": -1}, {"batch": "two"}])
def test_invalid_dims_raise(lenet_onnx, dims):
    with pytest.raises(ExchangeError) as caught:
        node_table(lenet_onnx, **dims)
    assert "batch" in str(caught.value)


def test_mlp_counts_as_torch_does(tmp_path):
    mlp = MLP()
    table = node_table(export(mlp, torch.zeros(1, 784), tmp_path / "mlp.onnx"))
    assert table["parameters"].sum() == sum(parameter.numel() for parameter in mlp.parameters())
