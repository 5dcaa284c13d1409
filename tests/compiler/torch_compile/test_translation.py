"""What a compiled graph returns, against the same graph run by torch: values, strides, shared memory, gradients."""

import contextlib
import copy

import pytest
import torch
from torch.nn import functional
from torch.utils._pytree import tree_leaves

from mlhood.compiler.torch_compile import Backend

# Dynamo reads the gradients of what it resumes with, and torch warns of it whatever the backend
pytestmark = pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf Tensor")


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


def randn(*shape):
    return torch.randn(shape, generator=torch.Generator().manual_seed(1))


def layout(results):
    """Return shapes, strides and types of tensors, and which share memory, or are the same tensor."""
    memory, tensors = {}, {}
    return [
        (
            tuple(x.shape),
            x.stride(),
            x.storage_offset(),
            x.dtype,
            x.requires_grad,
            memory.setdefault(x.untyped_storage()._cdata, len(memory)),
            tensors.setdefault(id(x), len(tensors)),
        )
        for x in results
    ]


def observe(function, inputs, mode, grad):
    """Run a function twice on copies of inputs, and return the layout and values of all tensors, and gradients."""
    for _ in range(2):
        copies = [copy.deepcopy(x).requires_grad_(grad and x.is_floating_point()) for x in inputs]
        torch.manual_seed(2)
        with mode():
            results = function(*copies)
        tensors = tree_leaves((results, copies))
        found = layout(tensors), [x.detach().clone() for x in tensors]
        differentiable = [x for x in tree_leaves(results) if x.requires_grad]
        if differentiable:
            sum(
                (x * torch.linspace(0.5, 1, x.numel()).reshape(x.shape)).square().sum() for x in differentiable
            ).backward()
    return *found, [x.grad for x in copies]


MODES = {
    "no_grad": (torch.no_grad, False),
    "inference": (torch.inference_mode, False),
    "gradients": (contextlib.nullcontext, True),
}


def views_of_one(x):
    y = torch.relu(x)
    return y, y.view(-1), y.t(), y[1:, ::2], *y.chunk(2, 1), y.unbind(0), y[None].expand(2, 4, 6), y.unfold(1, 2, 1), y


def across_the_border(x):
    y = torch.relu(x)  # the compiler runs it and what follows a sort, but torch the sort
    z = y.t().sort(1)[0].t()
    return y, y[0], z, (z * 2)[:, 1:], y.t().cumprod(0)


def written_through_a_view(x):
    y = x * 2
    y[1].add_(5)
    y.t()[0].zero_()
    return y, y.relu_(), y[0]


def drawn_between(x):
    first = functional.dropout(torch.relu(x), 0.5)
    second = functional.dropout(x, 0.5)
    return first, second, torch.sigmoid(x), torch.rand(3), torch.exp(first)


def images(x):
    return (
        x * 2,
        functional.max_pool2d(x, 2),
        functional.conv2d(x, torch.ones(2, 4, 3, 3)),
        functional.batch_norm(x, torch.zeros(4), torch.ones(4)),
        functional.interpolate(x, scale_factor=2.0),
        torch.cat([x, x], 1).softmax(1),
        x.permute(0, 2, 3, 1) + 1,
        functional.group_norm(x, 2),
    )


def attention(q, **options):
    result = functional.scaled_dot_product_attention(q, q * 2, q + 1, **options)
    return result, result.transpose(1, 2).reshape(2, 4, 24)


def normalisations(x):
    return (
        functional.normalize(x),
        functional.layer_norm(x, (6,)),
        functional.rms_norm(x, (6,)),
        functional.group_norm(x, 2),
    )


def losses(x):
    target = torch.tensor([0, 1, 2, 5])
    return (
        functional.cross_entropy(x, target, label_smoothing=0.1),
        functional.nll_loss(x.log_softmax(1), target, reduction="none"),
        functional.multi_margin_loss(x, target),
        functional.logsigmoid(x),
        functional.huber_loss(x, x.flip(0)),
    )


def pairs(x):
    return *torch.std_mean(x), *torch.aminmax(x), *x.max(1), *x.topk(2), *x.median(1), *torch.frexp(x)


def masks_and_grids(x):
    grids = torch.meshgrid(x[0] * 2, x[1], indexing="ij")
    return (x > 0)[:, None].expand(3, 2, 6), *grids, torch.arange(3).expand(2, 3)


def scattered(x, i):
    return torch.zeros(3, 6).scatter_add(0, (i + 0)[:, None].expand(-1, 6), x * 2)


def places_of_maxima(x):
    return functional.max_pool2d(x * 2, 2, return_indices=True), functional.adaptive_max_pool2d(x, 3)


def statistics_in_training(x, mean, variance):
    return functional.batch_norm(x, mean.detach(), variance.detach() + 1, training=True)


def other_element_types(x):
    return x.bfloat16() * 2, x.double().sum(0), x.int() // 2, torch.fft.rfft(x).abs() * 2


MASK = torch.ones(4, 4, dtype=torch.bool).tril()
IMAGE = randn(2, 4, 6, 6).to(memory_format=torch.channels_last)
FUNCTIONS = {
    "views of one": (views_of_one, randn(4, 6)),
    "views of an input": (lambda x: (x, x.view(-1), x.t(), x[1], x.detach(), x * 2), randn(4, 6)),
    "the same twice": (lambda x: ((y := x.exp()), y, y.t(), y.t(), y + 1), randn(4, 6)),
    "across the border": (across_the_border, randn(4, 6)),
    "written through a view": (written_through_a_view, randn(4, 6)),
    "expanded": (lambda x: ((x * 2).expand(2, 3, 6), x.mean(1, keepdim=True).expand_as(x), x.exp()), randn(3, 6)),
    "saved for the backward pass": (lambda x, z: ((x * 2).expand(4, 3, 6) * z).exp(), randn(3, 6), randn(4, 3, 6)),
    "masks and grids": (masks_and_grids, randn(3, 6)),
    "scatter": (scattered, randn(3, 6), torch.tensor([0, 1, 1])),
    "lengths 1": (lambda x: ((x * 2)[:, :1], (x[:1] * 2)[:, :, None].transpose(0, 2), x[1:2].t().exp()), randn(4, 6)),
    "lengths 0": (lambda x: ((x * 2)[:0], (x[:0] * 2).t(), x[:, :0] * 2, (x[:0].t() + 1).sum(1)), randn(4, 6)),
    "transposed inputs": (lambda x: (x * 2, x[::2].exp(), x.softmax(0), x.t()), randn(4, 6).t()),
    "expanded inputs": (lambda x: (x[0], x * 2, x.relu().t()), randn(4, 1).expand(4, 6)),
    "inputs with gaps": (lambda x: (x[0], x * 2, x.relu().t()), randn(4, 6)[1:, ::2]),
    "negated inputs": (lambda x: (x[0], x * 2, x.t().relu()), torch.complex(randn(4, 6), randn(4, 6)).conj().imag),
    "channels last": (images, IMAGE),
    "channels last, length 1": (lambda x: (x * 2, x + 1), randn(1, 4, 1, 1).to(memory_format=torch.channels_last)),
    "random numbers in order": (drawn_between, randn(4, 6)),
    "attention": (attention, randn(2, 3, 4, 8)),
    "causal attention": (lambda q: attention(q, is_causal=True), randn(2, 3, 4, 8)),
    "masked attention": (lambda q: attention(q, attn_mask=MASK), randn(2, 3, 4, 8)),
    "attention with dropout": (lambda q: attention(q, dropout_p=0.5), randn(2, 3, 4, 8)),
    "normalisations": (normalisations, randn(4, 6)),
    "losses": (losses, randn(4, 6)),
    "several results": (pairs, randn(4, 6)),
    "places of maxima": (places_of_maxima, randn(2, 4, 6, 6)),
    "statistics in training": (statistics_in_training, randn(4, 3, 5), randn(3), torch.ones(3)),
    "other element types": (other_element_types, randn(4, 6)),
}


@pytest.mark.parametrize("mode", ["no_grad", pytest.param("inference", marks=pytest.mark.exhaustive), "gradients"])
@pytest.mark.parametrize("name", FUNCTIONS)
def test_results_are_laid_out_as_torchs_and_share_memory_as_torchs(name, mode):
    function, *inputs = FUNCTIONS[name]
    backend = Backend()
    expected = observe(torch.compile(function, backend="aot_eager"), inputs, *MODES[mode])
    torch._dynamo.reset()
    got = observe(torch.compile(function, backend=backend), inputs, *MODES[mode])
    assert got[0] == expected[0]
    torch.testing.assert_close(got[1:], expected[1:], rtol=1e-4, atol=1e-5, equal_nan=True)
    parts = [part for capture in backend.captures for part in capture.parts]
    assert parts
    assert not any(part.reason for part in parts)
