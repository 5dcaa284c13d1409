"""Which nodes of a captured graph torch runs, and why."""

import pytest
import torch

from mlhood.compiler.torch_compile import Backend


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()


def test_an_operator_that_torch_exports_inexactly_is_left_to_torch():
    x, backend = torch.tensor([-1, 0, torch.nan]), Backend()
    compiled = torch.compile(lambda x: torch.sign(x.exp()) * 2, backend=backend)
    torch.testing.assert_close(compiled(x), torch.sign(x.exp()) * 2, equal_nan=True)
    [capture] = backend.captures
    assert "aten.sign" in capture.left["sign"]
    assert [part.graph and len(part.graph.nodes) for part in capture.parts] == [1, 1]
