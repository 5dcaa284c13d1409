"""torch.compile with the compiler as its backend, against torch itself; what torch runs; weights that change."""

import re
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.utils._pytree import tree_leaves

from mlhood.compiler.torch_compile import Backend, explain
from mlhood.errors import CompilerError

ROOT = Path(__file__).parents[3]

# Dynamo reads the gradients of what it resumes with, and torch warns of it whatever the backend
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def randn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


class Branches(nn.Module):
    """A network that asks a number of its own: Dynamo breaks the graph there."""

    def __init__(self):
        super().__init__()
        self.features = nn.Sequential(nn.Conv2d(1, 4, 3, padding=1), nn.BatchNorm2d(4), nn.ReLU(), nn.MaxPool2d(2))
        self.head = nn.Linear(64, 10)

    def forward(self, x):
        y = self.features(x)
        if y.mean() > 0:
            y = y - y.mean()
        return self.head(y.flatten(1)).softmax(1)


ACTIVATIONS = ["ELU", "SELU", "CELU", "GELU", "SiLU", "Mish", "Hardswish", "LogSigmoid", "Softplus"]
MODULES = [
    (nn.Conv1d(3, 4, 3, padding=1, stride=2), (2, 3, 9)),
    (nn.Conv2d(4, 6, 3, groups=2, dilation=2), (2, 4, 9, 9)),
    (nn.Conv3d(2, 3, 3), (1, 2, 5, 5, 5)),
    (nn.Conv2d(3, 4, 3, padding=1, padding_mode="circular"), (2, 3, 6, 6)),
    (nn.ConvTranspose2d(3, 4, 3, stride=2, padding=1, output_padding=1), (2, 3, 5, 5)),
    (nn.ReflectionPad2d(2), (1, 2, 5, 6)),
    (nn.GroupNorm(2, 4), (2, 4, 5, 5)),
    (nn.InstanceNorm2d(4, affine=True), (2, 4, 5, 5)),
    (nn.LayerNorm([4, 5]), (2, 4, 5)),
    (nn.RMSNorm(5), (2, 4, 5)),
    (nn.MaxPool2d(3, 2, 1, ceil_mode=True), (1, 2, 6, 6)),
    (nn.AvgPool2d(3, 2, 1, ceil_mode=True, count_include_pad=False), (1, 2, 6, 6)),
    (nn.AdaptiveAvgPool2d((3, 2)), (1, 2, 6, 6)),
    (nn.AdaptiveAvgPool2d(5), (1, 2, 7, 7)),
    (nn.AdaptiveMaxPool2d(1), (1, 2, 7, 7)),
    (nn.Upsample(scale_factor=2), (1, 2, 6, 6)),
    (nn.Upsample(scale_factor=1.5), (1, 2, 6, 6)),
    (nn.Upsample(size=(9, 11), mode="bilinear", align_corners=True), (1, 2, 6, 6)),
    (nn.Upsample(scale_factor=2, mode="bicubic"), (1, 2, 6, 6)),
    (nn.PixelShuffle(2), (1, 8, 3, 3)),
    (nn.LSTM(3, 4, num_layers=2, bidirectional=True, batch_first=True), (2, 5, 3)),
    (nn.GRU(3, 4), (5, 2, 3)),
    (nn.GLU(), (2, 6)),
    (nn.PReLU(4), (2, 4, 3)),
    *((getattr(nn, name)(), (3, 4)) for name in ACTIVATIONS),
    (Branches(), (2, 1, 8, 8)),
]


@pytest.mark.parametrize(("module", "shape"), MODULES, ids=lambda each: str(each).split("(")[0])
def test_modules_give_what_torch_gives(module, shape):
    """Results, and whether gradients are recorded, compiled and not."""
    backend = Backend()
    compiled, x = torch.compile(module.eval(), backend=backend), randn(*shape)
    for _ in range(2):
        for got, expected in zip(tree_leaves(compiled(x)), tree_leaves(module(x)), strict=True):
            assert got.requires_grad == expected.requires_grad
            torch.testing.assert_close(got, expected, rtol=1e-4, atol=1e-5)
    assert not [part.reason for capture in backend.captures for part in capture.parts if part.reason]


def test_dropout_is_left_to_torch_in_training():
    module = nn.Sequential(nn.Linear(4, 4), nn.Dropout(0.5), nn.Linear(4, 2)).train()
    compiled = torch.compile(module, backend=Backend())
    torch.manual_seed(5)
    got = compiled(randn(3, 4))
    torch.manual_seed(5)
    torch.testing.assert_close(got, module(randn(3, 4)))


def test_a_graph_break_gives_two_graphs_that_can_be_drawn():
    model = Branches().eval()
    captures = explain(model, randn(2, 1, 8, 8))
    assert len(captures) == 2
    first, second = (capture.parts[0].graph for capture in captures)
    assert "Conv" in {node.operator.name for node in first.nodes.values()}
    assert "Softmax" in {node.operator.name for node in second.nodes.values()}
    assert "features.0.convolution" in str(captures[0])


def test_other_batch_sizes_run(caplog):
    model = Branches().eval()
    compiled = torch.compile(model, backend=Backend())
    for batch in (2, 3, 5, 3):
        x = randn(batch, 1, 8, 8)
        with torch.no_grad():
            torch.testing.assert_close(compiled(x), model(x))
    assert not [record for record in caplog.records if record.name.startswith("mlhood")]


def test_the_backward_pass_is_torchs_and_right():
    model = Branches().eval()
    x = randn(2, 1, 8, 8)
    gradients = []
    for function in (torch.compile(model, backend=Backend()), model):
        model.zero_grad()
        function(x).square().sum().backward()
        gradients.append([parameter.grad.clone() for parameter in model.parameters()])
    for ours, theirs in zip(*gradients, strict=True):
        torch.testing.assert_close(ours, theirs, rtol=1e-4, atol=1e-6)


def test_a_training_loop_is_left_to_torch_after_some_steps():
    layer, backend = nn.Linear(4, 3), Backend()
    compiled = torch.compile(layer, backend=backend)
    twin = nn.Linear(4, 3)
    twin.load_state_dict(layer.state_dict())
    for module, function in ((layer, compiled), (twin, twin)):
        optimizer = torch.optim.SGD(module.parameters(), 0.1)
        for _ in range(6):
            optimizer.zero_grad()
            function(randn(8, 4)).square().mean().backward()
            optimizer.step()
    torch.testing.assert_close(layer.weight, twin.weight)
    assert "training" in backend.captures[0].parts[0].reason


def test_results_share_no_memory_with_each_other_or_the_weights():
    weight = randn(3)
    compiled = torch.compile(lambda x: (x + 1, x + 1, torch.ones(3), weight * 1), backend=Backend())
    results = compiled(randn(3))
    for result in results:
        result.zero_()
    torch.testing.assert_close(compiled(randn(3))[2], torch.ones(3))
    assert len({result.data_ptr() for result in results}) == 4
    assert weight.any()


def test_an_option_or_target_that_does_not_exist_is_refused():
    with pytest.raises(Exception, match="unknown option"):
        torch.compile(nn.ReLU(), backend="mlhood", options={"speed": 1})(randn(2))
    with pytest.raises(CompilerError, match="unknown target"):
        Backend("tpu")


def test_the_documented_three_lines_run_a_strangers_module():
    page = (ROOT / ".github/how-to/torch-compile.md").read_text(encoding="utf-8")
    lines = next(block for block in re.findall(r"```python\n(.*?)```", page, re.DOTALL) if "torch.compile" in block)
    assert len([line for line in lines.splitlines() if line]) == 3
    module, x = Branches(), randn(2, 1, 8, 8)
    names = {"model": module, "x": x}
    exec(lines, names)
    with torch.no_grad():
        torch.testing.assert_close(names["y"], module.eval()(x))
