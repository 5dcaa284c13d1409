"""The fuzz test's corpus: networks in the style of several exporters, and single operators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import onnx
import torch
from onnx import TensorProto, helper, numpy_helper

from mlhood.compiler.operators import IMPORT_RULES
from mlhood.exchange import export
from mlhood.models.resnet import BasicBlock, ResNet
from tests.tools.compiler.conformance import Case, cases

FLOAT = TensorProto.FLOAT


def node_tests() -> dict[str, Case]:
    """Return the first of ONNX's node tests of every second operator that is imported: all kinds of attributes."""
    tests: dict[str, Case] = {}
    for case in cases():
        known = case.suite == "node" and case.operators <= IMPORT_RULES.keys()
        if known and not any(case.operators <= other.operators for other in tests.values()):
            tests[case.name] = case
    return dict(list(tests.items())[::2])


def write_corpus(folder: Path, networks: dict[str, onnx.ModelProto]) -> None:
    """Write the corpus; it is read in the order of the file names."""
    networks = {**networks, "resnet": stripped_resnet(folder), "qdq": qdq_network()}
    models = {name: with_constants(case) for name, case in node_tests().items()}
    models |= {f"{name}_{i}": proto for name, proto in networks.items() for i in range(5)}
    for name, proto in models.items():
        (folder / f"{name}.onnx").write_bytes(proto.SerializeToString(deterministic=True))


def with_constants(case: Case) -> onnx.ModelProto:
    """Return a test's model with the test's data as constants for all inputs but the first."""
    model = onnx.ModelProto.FromString(case.model.SerializeToString())
    for value, array in list(zip(model.graph.input, case.data[0][0], strict=True))[1:]:
        if isinstance(array, np.ndarray | np.generic):
            model.graph.initializer.append(numpy_helper.from_array(np.asarray(array), value.name))
            model.graph.input.remove(value)
    return model


def stripped_resnet(folder: Path) -> onnx.ModelProto:
    """Return a ResNet whose weights are inputs, to keep the file small."""
    torch.manual_seed(0)
    path = export(ResNet(BasicBlock, [1, 1, 1, 1], classes=10).eval(), torch.zeros(1, 3, 32, 32), folder / "draft")
    model = onnx.load(path)
    path.unlink()
    for tensor in model.graph.initializer:
        if len(tensor.dims) > 1:
            model.graph.input.append(helper.make_tensor_value_info(tensor.name, tensor.data_type, tensor.dims))
    small = [tensor for tensor in model.graph.initializer if len(tensor.dims) <= 1]
    del model.graph.initializer[:]
    model.graph.initializer.extend(small)
    return model


def qdq_network() -> onnx.ModelProto:
    """Return a small int8 network in QDQ format: pairs of QuantizeLinear and DequantizeLinear."""
    draw = np.random.default_rng(0)
    node = helper.make_node
    weights = {
        "s": np.float32(0.05),
        "z": np.uint8(128),
        "w": draw.integers(-128, 128, (4, 1, 3, 3)).astype(np.int8),
        "ws": draw.uniform(0.01, 0.1, 4).astype(np.float32),
        "wz": np.zeros(4, np.int8),
        "b": draw.integers(-99, 99, 4).astype(np.int32),
        "bs": draw.uniform(0.001, 0.01, 4).astype(np.float32),
        "bz": np.zeros(4, np.int32),
        "fw": draw.standard_normal((3, 36), np.float32),
    }
    nodes = [
        node("QuantizeLinear", ["image", "s", "z"], ["q0"], "quantize"),
        node("DequantizeLinear", ["q0", "s", "z"], ["d0"]),
        node("DequantizeLinear", ["w", "ws", "wz"], ["dw"], axis=0),
        node("DequantizeLinear", ["b", "bs", "bz"], ["db"], axis=0),
        node("Conv", ["d0", "dw", "db"], ["c"], "conv", pads=[0, 0, 0, 0]),
        node("Relu", ["c"], ["r"]),
        node("QuantizeLinear", ["r", "s", "z"], ["q1"]),
        node("DequantizeLinear", ["q1", "s", "z"], ["d1"]),
        node("MaxPool", ["d1"], ["p"], "pool", kernel_shape=[2, 2], strides=[2, 2]),
        node("Flatten", ["p"], ["f"]),
        node("Gemm", ["f", "fw"], ["logits"], "fc", transB=1),
    ]
    graph = helper.make_graph(
        nodes,
        "qdq",
        [helper.make_tensor_value_info("image", FLOAT, ["batch", 1, 8, 8])],
        [helper.make_tensor_value_info("logits", FLOAT, ["batch", 3])],
        [numpy_helper.from_array(np.asarray(value), name) for name, value in weights.items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 13)], ir_version=8)
