"""Shared models, and a factory for small models."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
import torch
from onnx import TensorProto, helper, numpy_helper

from mlhood.exchange import export
from mlhood.models import MobileNetV2, resnet18
from tests.exchange.conftest import lenet, lenet_bn, lenet_onnx, operators_parsed_once, tf_lenet

__all__ = ["lenet", "lenet_bn", "lenet_onnx", "operators_parsed_once", "tf_lenet"]

NewModel = Callable[..., onnx.ModelProto]


@pytest.fixture(scope="session")
def resnet18_eval():
    """ResNet-18 for 10 classes, with batch normalization whose statistics differ from their initial values."""
    torch.manual_seed(0)
    model = resnet18(classes=10)
    for module in model.modules():
        if isinstance(module, torch.nn.BatchNorm2d):
            torch.nn.init.uniform_(module.running_mean, -0.1, 0.1)
            torch.nn.init.uniform_(module.running_var, 0.8, 1.2)
    return model.eval()


@pytest.fixture(scope="session")
def resnet18_onnx(resnet18_eval, tmp_path_factory):
    """`resnet18_eval` for images float32 [batch, 3, 64, 64], batch normalization folded by the export."""
    return export(resnet18_eval, torch.zeros(1, 3, 64, 64), tmp_path_factory.mktemp("resnet18") / "resnet18.onnx")


@pytest.fixture(scope="session")
def resnet18_bn_onnx(resnet18_eval, tmp_path_factory):
    """The same with its batch normalization."""
    path = tmp_path_factory.mktemp("resnet18") / "resnet18_bn.onnx"
    return export(resnet18_eval, torch.zeros(1, 3, 64, 64), path, keep_batchnorm=True)


@pytest.fixture(scope="session")
def mobilenet_onnx(tmp_path_factory):
    """A MobileNetV2 of a quarter of the width, for 10 classes and images float32 [batch, 3, 64, 64]."""
    torch.manual_seed(0)
    path = tmp_path_factory.mktemp("mobilenet") / "mobilenet.onnx"
    return export(MobileNetV2(10, 0.25).eval(), torch.zeros(1, 3, 64, 64), path)


@pytest.fixture(scope="session")
def new_model() -> NewModel:
    """Return a function that builds a model from nodes; `y` is its output."""

    def new(nodes, inputs, weights=None, *, opset=20, element=TensorProto.FLOAT, outputs=("y",), rank=None):
        input_infos = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
        opsets = [helper.make_opsetid("", opset)]
        if rank is None:  # a valid model declares the types of its outputs: take those that ONNX infers
            output_infos = [helper.make_empty_tensor_value_info(name) for name in outputs]
            graph = helper.make_graph(nodes, "test", input_infos, output_infos, tensors)
            draft = helper.make_model(graph, opset_imports=opsets)
            output_infos = onnx.shape_inference.infer_shapes(draft).graph.output
        else:
            shape = [f"{i}" for i in range(rank)]
            output_infos = [helper.make_tensor_value_info(name, element, shape) for name in outputs]
        graph = helper.make_graph(nodes, "test", input_infos, output_infos, tensors)
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    return new
