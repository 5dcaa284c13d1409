"""Shared models, exported once, and a LeNet as another exporter would write it."""

from collections.abc import Iterator
from functools import cache

import numpy as np
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper
from torch.onnx._internal.exporter import _registration

from mlhood.exchange import export
from mlhood.models import LeNet, LeNetBN


@pytest.fixture(scope="session", autouse=True)
def operators_parsed_once() -> Iterator[None]:
    """Let torch keep onnxscript's operators, which it parses again in each export, for a fifth of its time."""
    library = _registration.onnxscript_apis
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(library, "get_torchlib_ops", cache(library.get_torchlib_ops))
        yield


@pytest.fixture(scope="session")
def lenet():
    torch.manual_seed(0)
    return LeNet().eval()


@pytest.fixture(scope="session")
def lenet_onnx(lenet, tmp_path_factory):
    return export(lenet, torch.zeros(1, 1, 32, 32), tmp_path_factory.mktemp("lenet") / "lenet.onnx")


@pytest.fixture(scope="session")
def lenet_bn():
    torch.manual_seed(0)
    model = LeNetBN()
    with torch.no_grad():
        for _ in range(3):  # makes the running statistics differ from their initial values
            model(torch.randn(16, 1, 32, 32) * 2 + 1)
    return model.eval()


@pytest.fixture(scope="session")
def tf_lenet(lenet):
    """LeNet as tf2onnx writes it: opset 9, channels last, MatMul + Add, a dynamic batch named unk__1."""
    state = {name: value.numpy() for name, value in lenet.state_dict().items()}
    # With channels last, the flattened features are in the order height, width, channel.
    fc1 = state["fc1.weight"].reshape(120, 16, 5, 5).transpose(2, 3, 1, 0).reshape(400, 120)
    weights = {
        "conv1/W": state["conv1.weight"],
        "conv1/b": state["conv1.bias"],
        "conv2/W": state["conv2.weight"],
        "conv2/b": state["conv2.bias"],
        "shape": np.array([-1, 400], np.int64),
        "fc1/W": fc1,
        "fc2/W": state["fc2.weight"].T,
        "fc3/W": state["fc3.weight"].T,
        **{f"{name}/b": state[f"{name}.bias"] for name in ("fc1", "fc2", "fc3")},
    }
    node = helper.make_node
    pool = {"kernel_shape": [2, 2], "strides": [2, 2]}
    nodes = [
        node("Transpose", ["input:0"], ["t0"], "to_nchw", perm=[0, 3, 1, 2]),
        node("Conv", ["t0", "conv1/W", "conv1/b"], ["c1"], "conv1", kernel_shape=[5, 5]),
        node("Relu", ["c1"], ["r1"], "relu1"),
        node("MaxPool", ["r1"], ["p1"], "pool1", **pool),
        node("Conv", ["p1", "conv2/W", "conv2/b"], ["c2"], "conv2", kernel_shape=[5, 5]),
        node("Relu", ["c2"], ["r2"], "relu2"),
        node("MaxPool", ["r2"], ["p2"], "pool2", **pool),
        node("Transpose", ["p2"], ["t1"], "to_nhwc", perm=[0, 2, 3, 1]),
        node("Reshape", ["t1", "shape"], ["flat"], "flatten"),
        node("MatMul", ["flat", "fc1/W"], ["m1"], "fc1/MatMul"),
        node("Add", ["m1", "fc1/b"], ["a1"], "fc1/BiasAdd"),
        node("Relu", ["a1"], ["r3"], "fc1/Relu"),
        node("MatMul", ["r3", "fc2/W"], ["m2"], "fc2/MatMul"),
        node("Add", ["m2", "fc2/b"], ["a2"], "fc2/BiasAdd"),
        node("Relu", ["a2"], ["r4"], "fc2/Relu"),
        node("MatMul", ["r4", "fc3/W"], ["m3"], "fc3/MatMul"),
        node("Add", ["m3", "fc3/b"], ["logits:0"], "fc3/BiasAdd"),
    ]
    graph = helper.make_graph(
        nodes,
        "tf2onnx",
        [helper.make_tensor_value_info("input:0", TensorProto.FLOAT, ["unk__1", 32, 32, 1])],
        [helper.make_tensor_value_info("logits:0", TensorProto.FLOAT, ["unk__1", 10])],
        [numpy_helper.from_array(np.ascontiguousarray(value), name) for name, value in weights.items()],
    )
    opsets = [helper.make_opsetid("", 9), helper.make_opsetid("ai.onnx.ml", 2)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=4, producer_name="tf2onnx")
