"""The fuzz test's corpus: networks in the style of several exporters, and single operators."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import onnx
import torch
from onnx import helper, numpy_helper

from mlhood.compiler.operators import IMPORT_RULES
from mlhood.exchange import export
from mlhood.models.resnet import BasicBlock, ResNet
from tests.compiler.quantize.ort import quantized_by_onnxruntime
from tests.tools.compiler.conformance import Case, cases


def node_tests() -> dict[str, Case]:
    """Return the first of ONNX's node tests of every second operator that is imported: all kinds of attributes."""
    tests: dict[str, Case] = {}
    for case in cases():
        known = case.suite == "node" and case.operators <= IMPORT_RULES.keys()
        if known and not any(case.operators <= other.operators for other in tests.values()):
            tests[case.name] = case
    return dict(list(tests.items())[::2])


def corpus_of(networks: dict[str, onnx.ModelProto], folder: Path) -> list[bytes]:
    """Return the corpus as files, in the order of their names."""
    images = np.random.default_rng(0).standard_normal((8, 1, 32, 32), np.float32)
    with TemporaryDirectory() as scratch:
        qdq = quantized_by_onnxruntime(networks["lenet"], images, scratch, per_channel=True)
    networks = {**networks, "resnet": stripped_resnet(folder), "qdq": qdq}
    models = {name: with_constants(case) for name, case in node_tests().items()}
    models |= {f"{name}_{i}": proto for name, proto in networks.items() for i in range(5)}
    return [models[name].SerializeToString(deterministic=True) for name in sorted(models)]


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
