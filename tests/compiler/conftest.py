"""Models that several tests compile, and the wrapping of one operator as a model."""

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
    """Return a function that makes a model of nodes; `y` is its output."""

    def new(nodes, inputs, weights=None, *, opset=20, element=TensorProto.FLOAT, outputs=("y",), rank=None):
        declared = [helper.make_tensor_value_info(name, kind, shape) for name, (kind, shape) in inputs.items()]
        tensors = [numpy_helper.from_array(np.asarray(value), name) for name, value in (weights or {}).items()]
        made = [helper.make_tensor_value_info(name, element, [f"{i}" for i in range(rank or 0)]) for name in outputs]
        if rank is None:  # the outputs' types as ONNX infers them, since a valid model declares them
            made = [helper.make_empty_tensor_value_info(name) for name in outputs]
        opsets = [helper.make_opsetid("", opset)]
        draft = helper.make_model(helper.make_graph(nodes, "test", declared, made, tensors), opset_imports=opsets)
        if rank is None:
            made = onnx.shape_inference.infer_shapes(draft).graph.output
        graph = helper.make_graph(nodes, "test", declared, made, tensors)
        return helper.make_model(graph, opset_imports=opsets, ir_version=8)

    return new
