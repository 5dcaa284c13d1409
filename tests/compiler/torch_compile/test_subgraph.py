"""A compiled part: weights that change, and what raises in torch."""

import re

import pytest
import torch
from torch import nn
from torch.nn import functional

from mlhood.compiler.torch_compile import Backend, subgraph
from mlhood.errors import CompilerError


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def randn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


CHANGES = {
    "in place": lambda layer: layer.weight[1, 2].add_(1),
    "data": lambda layer: layer.weight.data.mul_(2),
    "a row of data": lambda layer: layer.weight.data[3].fill_(1),
    "the last element of data": lambda layer: layer.weight.data[-1, -1].add_(100),
    "an element by NumPy": lambda layer: layer.weight.detach().numpy().__setitem__((77, 5), 100),
    "signs": lambda layer: layer.weight.data.neg_(),
    "rows swapped": lambda layer: layer.weight.data.copy_(layer.weight.data.flip(0)),
    "not a number": lambda layer: layer.bias.data[7].fill_(torch.nan),
    "replaced": lambda layer: setattr(layer, "weight", nn.Parameter(randn(200, 100))),
    "inference mode": lambda layer: torch.inference_mode()(layer.bias.data.add_)(1),
}


@pytest.mark.parametrize("change", CHANGES)
@pytest.mark.parametrize("is_transposed", [False, True])
def test_weights_that_change_are_seen(change, is_transposed):
    layer, backend = nn.Linear(100, 200), Backend()
    if is_transposed:
        layer.weight = nn.Parameter(randn(100, 200).t())
    compiled = torch.compile(layer, backend=backend)
    x = randn(2, 100)
    with torch.no_grad():
        compiled(x)
        CHANGES[change](layer)
        for _ in range(2):
            torch.testing.assert_close(compiled(x), layer(x), equal_nan=True, rtol=1e-4, atol=1e-4)
    assert not any(part.reason for capture in backend.captures for part in capture.parts)


def test_weights_that_do_not_change_are_compiled_once(monkeypatch):
    prepared = []
    monkeypatch.setattr(
        subgraph, "prepare", lambda *each, prepare=subgraph.prepare: prepared.append(1) or prepare(*each)
    )
    layers = nn.Sequential(nn.Linear(4, 3), nn.ReLU(), nn.Conv1d(1, 2, 2)).to(memory_format=torch.preserve_format)
    layers[0].weight = nn.Parameter(randn(8, 9)[::2, ::2][:3, :4])  # with gaps
    compiled = torch.compile(layers, backend=Backend())
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(randn(2, 1, 4)), layers(randn(2, 1, 4)))
    assert len(prepared) == 1


def test_results_that_are_views_of_weights_share_their_memory():
    layer = nn.Linear(4, 3)
    compiled = torch.compile(lambda x: (layer.weight.t(), layer.weight[0], layer(x)), backend=Backend())
    with torch.no_grad():
        whole, row, _ = compiled(randn(2, 4))
        whole.fill_(2)
        row.fill_(3)
        torch.testing.assert_close(compiled(randn(2, 4))[2], layer(randn(2, 4)))
    assert layer.weight.tolist() == [[3.0] * 4, [2.0] * 4, [2.0] * 4]


LOOK_UPS = {
    "embedding": lambda x, i: functional.embedding(i, x),
    "index_select": lambda x, i: x.index_select(0, i),
    "gather": lambda x, i: x.gather(0, i[:, None]),
    "take_along_dim": lambda x, i: torch.take_along_dim(x, i[None], 1),
    "index": lambda x, i: x[i],
    "index of two axes": lambda x, i: x[i, i],
    "take": lambda x, i: x.take(i * 4),
    "scatter": lambda x, i: x.scatter(0, i[:, None], 1.5),
    "index_add": lambda x, i: x.index_add(0, i, x[:2]),
    "cross_entropy": lambda x, i: functional.cross_entropy(x[:2], i),
    "embedding_bag": lambda x, i: functional.embedding_bag(i[None], x),
}


@pytest.mark.parametrize("name", LOOK_UPS)
def test_an_index_that_torch_refuses_raises_what_torch_raises(name):
    def function(x, indices):
        return LOOK_UPS[name](x * 2, indices) * 2

    compiled = torch.compile(function, backend=Backend())
    for indices in ([0, 1], [1, -1], [1, -7], [1, 4], [1, 2**40], [1, 2]):  # the part stays compiled after an error
        try:
            expected = function(randn(4, 4), torch.tensor(indices))
        except (RuntimeError, IndexError) as error:
            with pytest.raises(type(error), match=re.escape(str(error))):
                compiled(randn(4, 4), torch.tensor(indices))
        else:
            torch.testing.assert_close(compiled(randn(4, 4), torch.tensor(indices)), expected)


@pytest.mark.parametrize(
    ("step", "error"),
    [
        ("translate", KeyError("no memory")),
        ("import_model", ValueError("no memory")),
        ("prepare", CompilerError("no memory")),
        ("prepare", MemoryError("no memory")),
    ],
)
def test_a_part_that_cannot_be_compiled_is_left_to_torch(step, error, monkeypatch, caplog):
    def fail(*_, **__):
        raise error

    monkeypatch.setattr(subgraph, step, fail)
    layer, backend = nn.Linear(4, 3), Backend()
    compiled = torch.compile(layer, backend=backend)
    with torch.no_grad():
        for _ in range(3):
            torch.testing.assert_close(compiled(randn(2, 4)), layer(randn(2, 4)))
    assert caplog.text.count("no memory") == 1
    assert "no memory" in backend.captures[0].parts[0].reason


def test_a_part_that_cannot_be_run_is_left_to_torch(monkeypatch, caplog):
    class Fails:
        def run(self, inputs):
            raise ZeroDivisionError("a slip")

    monkeypatch.setattr(subgraph, "prepare", lambda *_: Fails())
    compiled = torch.compile(lambda x: x * 2 + 1, backend=Backend())
    for _ in range(3):
        torch.testing.assert_close(compiled(randn(2, 4)), randn(2, 4) * 2 + 1)
    assert caplog.text.count("a slip") == 1
