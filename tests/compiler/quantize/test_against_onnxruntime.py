"""The accuracy of our quantised graphs against that of ONNX Runtime's quantiser, with the same settings."""

import numpy as np
import onnx
import pytest
import torch

from mlhood import compile
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.quantize import Recipe, profile, quantize, sqnr
from mlhood.exchange import export
from mlhood.models import resnet18
from tests.compiler.quantize.conftest import trained_lenet
from tests.compiler.quantize.ort import logits_of, quantized_by_onnxruntime

TOLERANCE = 0.5  # dB
SETTINGS = [
    ("int8", "asymmetric", False),
    ("int8", "asymmetric", True),
    ("int8", "symmetric", False),
    ("int8", "symmetric", True),
    ("uint8", "asymmetric", False),
    ("uint8", "asymmetric", True),
    ("int16", "asymmetric", False),
    ("int16", "symmetric", True),
]


@pytest.fixture(scope="module", params=[0, pytest.param(1, marks=pytest.mark.exhaustive)])
def lenet(request, data, lenet_model, tmp_path_factory):
    """A LeNet of this seed, its optimised graph, its profile, and its logits in float."""
    model = lenet_model
    if request.param:
        path = tmp_path_factory.mktemp("seed") / "lenet.onnx"
        model = onnx.load(export(trained_lenet(data, request.param), np.zeros((1, 1, 32, 32), np.float32), path))
    graph = optimize(import_model(model))
    statistics = profile(graph, [{"image": data.train_images[:200]}])
    return model, graph, statistics, logits_of(model, data.test_images)


@pytest.mark.parametrize(("element", "schema", "per_channel"), SETTINGS)
def test_lenet(lenet, data, tmp_path, element, schema, per_channel):
    model, graph, statistics, expected = lenet
    options = {"element": element, "per_channel": per_channel, "symmetric": schema == "symmetric"}
    theirs = logits_of(quantized_by_onnxruntime(model, data.train_images[:200], tmp_path, **options), data.test_images)
    quantized = quantize(graph, statistics, Recipe(schema, element, per_channel, headroom=0.0))
    ours = Interpreter(quantized).run({"image": data.test_images})["logits"]
    assert sqnr(expected, ours) >= sqnr(expected, theirs) - TOLERANCE
    assert np.mean(ours.argmax(1) == expected.argmax(1)) >= 0.99


@pytest.mark.parametrize("schema", ["asymmetric", "symmetric", "power_of_two"])
def test_sixteen_bits_do_not_saturate_beyond_the_calibrated_range(lenet, data, schema):
    _, graph, statistics, expected = lenet
    ours = Interpreter(quantize(graph, statistics, Recipe(schema, "int16"))).run({"image": data.test_images})["logits"]
    assert sqnr(expected, ours) > 70


@pytest.fixture(scope="module")
def resnet(tmp_path_factory):
    """ResNet-18 with batch normalisation statistics that differ from their initial values."""
    torch.manual_seed(0)
    network = resnet18(classes=10)
    with torch.no_grad():
        for module in network.modules():
            if isinstance(module, torch.nn.BatchNorm2d):
                module.weight.uniform_(0.5, 1.5)
                module.bias.uniform_(-0.3, 0.3)
        for _ in range(4):
            network(torch.randn(3, 3, 64, 64))
    path = tmp_path_factory.mktemp("resnet") / "resnet18.onnx"
    return onnx.load(export(network.eval(), torch.zeros(1, 3, 64, 64), path))


@pytest.mark.parametrize("per_channel", [pytest.param(False, marks=pytest.mark.exhaustive), True])
def test_resnet18(resnet, tmp_path, per_channel):
    draw = np.random.default_rng(0)
    calibration, images = (draw.standard_normal((size, 3, 64, 64), np.float32) for size in (8, 16))
    theirs = logits_of(quantized_by_onnxruntime(resnet, calibration, tmp_path, per_channel=per_channel), images)
    graph = optimize(import_model(resnet))
    quantized = quantize(graph, profile(graph, [{"image": calibration}]), Recipe(per_channel=per_channel))
    ours, expected = Interpreter(quantized).run({"image": images})["logits"], logits_of(resnet, images)
    assert sqnr(expected, ours) >= sqnr(expected, theirs) - TOLERANCE


class Activated(torch.nn.Module):
    """A convolution whose results are small beside the ends of its activation, and one that reads them."""

    def __init__(self, activation):
        super().__init__()
        self.first, self.second = torch.nn.Conv2d(8, 8, 1), torch.nn.Conv2d(8, 8, 1)
        self.activation = activation
        torch.nn.init.normal_(self.first.weight, std=0.02)

    def forward(self, x):
        return self.second(self.activation(self.first(x)))


def seeded(make, *arguments):
    torch.manual_seed(0)
    return make(*arguments).eval()


@pytest.mark.parametrize("activation", [torch.nn.Hardswish, torch.nn.Sigmoid, torch.nn.Tanh, torch.nn.ReLU])
def test_the_range_before_a_fused_activation_is_that_of_the_data(activation, tmp_path):
    x = np.random.default_rng(0).standard_normal((64, 8, 4, 4), np.float32)
    model = onnx.load(export(seeded(Activated, activation()), x[:1], tmp_path / "model.onnx"))
    assert_no_worse(model, {"image": x}, tmp_path)


class Masked(torch.nn.Module):
    """Attention of vectors to those before them, by a mask that is added."""

    def __init__(self):
        super().__init__()
        self.project = torch.nn.Linear(32, 32)
        self.register_buffer("mask", torch.full((8, 8), -torch.inf).triu(1))

    def forward(self, x):
        y = self.project(x)
        return torch.softmax(x @ y.transpose(1, 2) + self.mask, 2) @ y


def test_a_mask_of_infinities_stays_float(tmp_path):
    x = np.random.default_rng(0).standard_normal((16, 8, 32), np.float32)
    model = onnx.load(export(seeded(Masked), x[:1], tmp_path / "model.onnx"))
    assert profile(optimize(import_model(model)), [{"image": x}]).unbounded
    ours = compile(model, quantization=Recipe(per_channel=True), calibration={"image": x}).run(image=x)["logits"]
    assert sqnr(logits_of(model, x), ours) > 30


def assert_no_worse(model, inputs, folder):
    """Check that our model is as exact as ONNX Runtime's, at most `TOLERANCE` below."""
    (x,) = inputs.values()
    quantized = quantized_by_onnxruntime(model, x, folder, per_channel=True)
    expected, theirs = logits_of(model, x), logits_of(quantized, x)
    ours = compile(model, quantization=Recipe(per_channel=True), calibration=inputs).run(**inputs)["logits"]
    assert sqnr(expected, ours) >= sqnr(expected, theirs) - TOLERANCE
