"""Shared models, and a factory for small models."""

from collections.abc import Callable

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper

from tests.exchange.conftest import lenet, lenet_bn, lenet_onnx, tf_lenet

__all__ = ["lenet", "lenet_bn", "lenet_onnx", "tf_lenet"]

NewModel = Callable[..., onnx.ModelProto]


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
