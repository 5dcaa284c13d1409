"""Which nodes of a captured graph torch runs, and why."""

import pytest
import torch

from mlhood.compiler.torch_compile import Backend
from mlhood.compiler.torch_compile.aten import RULES


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


@pytest.mark.parametrize("error", [ValueError, TypeError, OverflowError, ZeroDivisionError, KeyError])
def test_a_rule_that_raises_anything_leaves_its_node_to_torch(error, monkeypatch, caplog):
    def fail(*_):
        raise error("a slip")

    monkeypatch.setitem(RULES, torch.ops.aten.erf.default, fail)
    x, backend = torch.linspace(-1, 1, 5), Backend()
    compiled = torch.compile(lambda x: torch.erf(x.exp()) * 2, backend=backend)
    for _ in range(2):
        torch.testing.assert_close(compiled(x), torch.erf(x.exp()) * 2)
    assert caplog.text.count("a slip") == 1
    [capture] = backend.captures
    assert "a slip" in capture.left["erf"]
    assert [len(part.graph.nodes) for part in capture.parts] == [1, 1]


@pytest.mark.parametrize(
    ("function", "x"),
    [
        (lambda x: (x.sum() * 2).permute(()), torch.ones(3)),
        (lambda x: x < 2**40, torch.tensor([1, 2], dtype=torch.int32)),
        (lambda x: x + 2**40, torch.tensor([1, 2], dtype=torch.int32)),
    ],
)
def test_arguments_that_onnx_cannot_express_are_no_error(function, x):
    torch.testing.assert_close(torch.compile(function, backend=Backend())(x), function(x), check_stride=True)
