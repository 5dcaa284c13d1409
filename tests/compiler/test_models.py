"""Complete models: import, verification, text round trip, and execution against ONNX Runtime."""

from typing import Any

import numpy as np
import onnx
import pytest
import torch

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.inputs import random_inputs
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.exchange import export
from mlhood.exchange import run as run_onnxruntime
from mlhood.models import MLP, gpt_block, vit_block
from mlhood.models.transformer import VIT_TOKENS


@pytest.fixture(scope="session")
def models(lenet_onnx, lenet_bn, resnet18_onnx, resnet18_bn_onnx, tf_lenet, tmp_path_factory):
    folder = tmp_path_factory.mktemp("models")
    torch.manual_seed(0)
    image = torch.zeros(1, 1, 32, 32)
    mlp = MLP().eval()
    return {
        "lenet": lenet_onnx,
        "lenet_bn": export(lenet_bn, image, folder / "lenet_bn.onnx"),
        "lenet_bn kept": export(lenet_bn, image, folder / "lenet_bn_kept.onnx", keep_batchnorm=True),
        "mlp": export(mlp, torch.zeros(1, next(mlp.parameters()).shape[1]), folder / "mlp.onnx"),
        "resnet18": resnet18_onnx,
        "resnet18 kept": resnet18_bn_onnx,
        "tf2onnx": tf_lenet,
        "vit": export(vit_block(), torch.zeros(1, VIT_TOKENS, 192), folder / "vit.onnx", **TOKENS),
        "gpt": export(gpt_block(tokens=16), torch.zeros(1, 16, 768), folder / "gpt.onnx", **TOKENS),
    }


TOKENS: dict[str, Any] = {"input_names": ["tokens"], "output_names": ["features"]}
NAMES = ["lenet", "lenet_bn", "lenet_bn kept", "mlp", "resnet18", "resnet18 kept", "tf2onnx", "vit", "gpt"]


@pytest.mark.parametrize("name", NAMES)
def test_a_model_matches_onnx_runtime(models, name):
    model = onnx.load(models[name]) if not isinstance(models[name], onnx.ModelProto) else models[name]
    graph = import_model(model)
    verify(graph)
    (placeholder,) = graph.placeholders.values()
    assert isinstance(placeholder.type.shape[0], str)
    shape = [3 if isinstance(axis, str) else axis for axis in placeholder.type.shape]
    x = np.random.default_rng(0).standard_normal(shape, np.float32)
    expected = run_onnxruntime(model, x, threads=1)
    got = Interpreter(graph).run({placeholder.name: x})
    assert got.keys() == expected.keys()
    for output in expected:
        np.testing.assert_allclose(got[output], expected[output], rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("name", ["vit", "gpt"])
def test_an_optimised_model_matches_onnx_runtime(models, name):
    graph = optimize(import_model(models[name]))
    inputs = random_inputs({name: value.type for name, value in graph.placeholders.items()}, {"batch": 2})
    (expected,) = run_onnxruntime(models[name], threads=1, **inputs).values()
    (got,) = Interpreter(graph).run(inputs).values()
    assert np.abs(expected).max() > 0.1
    np.testing.assert_allclose(got, expected, rtol=1e-3, atol=1e-5 * np.abs(expected).max())


@pytest.mark.parametrize("name", NAMES)
def test_the_text_of_a_model_round_trips(models, name):
    graph = import_model(models[name])
    text = to_text(graph)
    assert to_text(import_model(models[name])) == text
    parsed = parse(text, constants_by_digest(graph))
    verify(parsed)
    assert to_text(parsed) == text
