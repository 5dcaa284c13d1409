"""Small fused graphs, and a LeNet that was trained on the digits."""

import numpy as np
import onnx
import pytest
import torch

from compiler.conftest import new_model
from mlhood.compiler.hir import Graph
from mlhood.compiler.hir.importer import import_model
from mlhood.compiler.operators.activation import activation_of
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.operators.matrix import FullyConnected, Gemm
from mlhood.exchange import export
from mlhood.models import LeNet, digits, train

__all__ = ["new_model"]


def fused(graph: Graph) -> Graph:
    """Gemm as FullyConnected, activations and residual branches in the layer before them."""
    graph = graph.copy()
    for node in list(graph.topological()):
        if isinstance(node.operator, Gemm) and node.operator.transpose_b:
            graph.replace(node, FullyConnected(), *node.inputs)
    for node in list(graph.topological()):
        before = node.inputs[0].producer if node.inputs and node.inputs[0] is not None else None
        if before is None or len(before.outputs[0].users) > 1:
            continue
        activation = activation_of(node.operator)
        layer = before.operator
        if activation and isinstance(layer, Conv | FullyConnected) and not layer.activation:
            fields = {**layer.attributes, "activation": activation}
            name = before.name
            new = graph.replace(node, type(layer)(**fields), *before.inputs)
            graph.remove(before)
            graph.rename_node(new, name)
        elif isinstance(node.operator, Add) and isinstance(layer, Conv) and len(before.inputs) == 3:
            name = before.name
            new = graph.replace(node, layer, *before.inputs, node.inputs[1])
            graph.remove(before)
            graph.rename_node(new, name)
    return graph


@pytest.fixture(scope="session")
def data():
    return digits("")


def trained(data, seed, epochs=4):
    torch.manual_seed(seed)
    model = LeNet()
    train(model, data.train_images, data.train_labels, epochs=epochs, seed=seed)
    return model.eval()


@pytest.fixture(scope="session")
def lenet_model(data, tmp_path_factory):
    path = tmp_path_factory.mktemp("quantize") / "lenet.onnx"
    return onnx.load(export(trained(data, 0), np.zeros((1, 1, 32, 32), np.float32), path))


@pytest.fixture(scope="session")
def lenet_graph(lenet_model):
    return fused(import_model(lenet_model))
