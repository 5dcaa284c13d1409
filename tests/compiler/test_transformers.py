"""Whole transformers, tiny, equal to torch: exported, on the interpreter and the target cpu, and by torch.compile."""

import pytest
import torch
from torch import nn
from torch.nn import functional

from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.bench.model import executable_of, write_onnx
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.torch_compile import Backend
from mlhood.models.transformers import Config, TransformerLayer, bert, gpt2, llama, vit, whisper

# The width of a head is that of a vector of 16 numbers, as the CPU's kernel requires.
MODELS = {
    "gpt2": lambda: gpt2(Config(1, 64, 2, packed=True, gelu="tanh"), 50, 80),
    "llama": lambda: llama(Config(1, 64, 4, groups=2, hidden=96, llama=True)),
    "bert": lambda: bert(Config(1, 64, 2, norm="post"), 50, 40),
    "vit": lambda: vit(Config(1, 64, 2, packed=True), 32, 8, 10),
    "whisper": lambda: whisper(Config(1, 64, 2), 12),
}
TOKENS = {"vit": 17, "whisper": 12}  # the others have any number
DECODERS = ["gpt2", "llama"]
TARGETS = ["interpreter", "cpu"]


@pytest.fixture(autouse=True)
def fresh():
    torch._dynamo.reset()
    torch.manual_seed(0)


def build(name):
    model = MODELS[name]().eval()
    for parameter in model.parameters():  # of norms, too, so that the exporter shares none
        parameter.data += 0.02 * torch.randn_like(parameter)
    return model


@pytest.fixture(scope="module")
def exported(tmp_path_factory):
    """Return a function that writes a model once: prefill, a step of one token, or of several, with dynamic axes."""
    folder, paths = tmp_path_factory.mktemp("transformers"), {}

    def write(name, tokens, past):
        key = name, min(tokens, 2), bool(past)
        if key not in paths:
            torch.manual_seed(0)
            model, dynamic = (
                build(name),
                {0: "batch", **({} if name in TOKENS or tokens == 1 else {1: "tokens"}), 2: "past"},
            )
            path = folder / f"{name}-{key[1]}-{key[2]}.onnx"
            write_onnx(model, model.example(2, tokens, past), path, dynamic)
            paths[key] = model, path
        return paths[key]

    return write


def check(model, executable, inputs):
    with torch.inference_mode():
        expected = model(*inputs.values())
    expected = expected if isinstance(expected, tuple) else (expected,)
    results = executable.run(**{name: x.numpy() for name, x in inputs.items()})
    for result, wanted in zip(results.values(), expected, strict=True):
        torch.testing.assert_close(torch.from_numpy(result), wanted, rtol=1e-4, atol=1e-4)
    return expected


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("name", MODELS)
def test_models_without_a_cache(exported, name, target):
    tokens = TOKENS.get(name, 5)
    model, path = exported(name, tokens, 0)
    executable = compile_model(path, target)
    for batch in (1, 3):
        for length in [tokens] if name in TOKENS else [tokens, tokens + 3]:
            check(model, executable, model.example(batch, length, 0))


@pytest.mark.parametrize("target", TARGETS)
@pytest.mark.parametrize("tokens", [1, 3])
@pytest.mark.parametrize("name", DECODERS)
def test_steps_with_a_growing_cache(exported, name, tokens, target):
    model, path = exported(name, tokens, 4)
    executable = compile_model(path, target)
    for batch in (1, 3):
        inputs = model.example(batch, tokens, 4)
        for _ in range(3):
            _, *cache = check(model, executable, inputs)
            inputs |= dict(zip([key for key in inputs if key.startswith("past")], cache, strict=True))
    if target == "cpu":
        assert executable.runner.compilations == 1


def rms_norm(graph, x, shape, weight, epsilon):
    """Write nn.RMSNorm as ONNX's operators."""
    mean = graph.op("ReduceMean", graph.op("Mul", x, x), axes_i=[-1])
    root = graph.op("Sqrt", graph.op("Add", mean, graph.op("Constant", value_t=torch.tensor(1e-5))))
    return graph.op("Mul", graph.op("Div", x, root), weight)


@pytest.mark.filterwarnings("ignore")  # it is deprecated, and traces lengths as numbers
@pytest.mark.parametrize(
    ("name", "tokens", "past"),
    [
        *((name, tokens, past) for name in DECODERS for tokens, past in ((5, 0), (1, 4), (3, 4))),
        *(("bert", 5, 0), ("vit", 17, 0), ("whisper", 12, 0)),
    ],
)
def test_models_of_the_torchscript_exporter(tmp_path, name, tokens, past):
    torch.onnx.register_custom_op_symbolic("aten::rms_norm", rms_norm, 17)  # which it cannot export
    model, path = build(name), tmp_path / "model.onnx"
    inputs = model.example(2, tokens, past)
    words = {1: "tokens"} if name not in TOKENS and tokens > 1 else {}
    axes = {key: {0: "batch", **({2: "past"} if key.startswith("past") else words)} for key in inputs}
    options = {"input_names": [*inputs], "dynamic_axes": axes, "dynamo": False, "opset_version": 17}
    torch.onnx.export(model, tuple(inputs.values()), path, **options)
    for target in TARGETS:
        executable = compile_model(path, target)
        for batch, length in [(1, past), (3, past and past + 2)]:
            check(model, executable, model.example(batch, tokens, length))
    if past or name not in DECODERS:  # a causal mask of a dynamic number of tokens may hide a query from all keys
        assert "Attention" in [node.operator.name for node in executable.runner.graph.nodes.values()]


@pytest.mark.parametrize("name", DECODERS)
def test_attention_of_a_step_is_one_kernel_that_reads_shared_keys_once(exported, name):
    _, path = exported(name, 1, 4)
    runner = executable_of(compile_model(path, "cpu")).runner
    assert isinstance(runner, Cpu)
    kinds = [node.operator.name for node in runner.graph.nodes.values()]
    assert kinds.count("Attention") == 1
    assert not {"Softmax", "MatMul", "Expand", "Dynamic"} & set(kinds)


@pytest.mark.parametrize("name", MODELS)
def test_torch_compile(name):
    model, backend = build(name), Backend()
    compiled = torch.compile(model, backend=backend)
    sizes = [(1, TOKENS[name], 0), (3, TOKENS[name], 0)] if name in TOKENS else [(1, 5, 0), (3, 7, 0)]
    sizes += [(1, 1, 4), (3, 1, 5), (1, 3, 6)] if name in DECODERS else []
    for size in sizes:
        inputs = model.example(*size).values()
        with torch.no_grad():
            torch.testing.assert_close(compiled(*inputs), model(*inputs), rtol=1e-4, atol=1e-4)
    assert not [part.reason for capture in backend.captures for part in capture.parts if part.reason]


MASKS = {
    "none": lambda n, t: None,
    "causal": lambda n, t: torch.ones(t, t, dtype=torch.bool).tril(),
    "padded": lambda n, t: (torch.arange(t) < t - torch.arange(n)[:, None])[:, None, None],
    "arbitrary": lambda n, t: torch.rand(n, 1, t, t) > 0.5,
    "a bias for each head": lambda n, t: torch.randn(n, 4, t, t),
}
CONFIGS = {"heads": Config(1, 64, 4), "grouped queries": Config(1, 64, 4, groups=2, hidden=96, llama=True)}


class Masked(nn.Module):
    """A layer with a mask as an input."""

    def __init__(self, config, causal):
        super().__init__()
        self.layer, self.causal = TransformerLayer(config), causal

    def forward(self, tokens, mask=None):
        """Return the layer's result."""
        return self.layer(tokens, mask, causal=self.causal)[0]


def masked_inputs(batch, length, kind):
    """Return inputs with a mask of this kind, in which each query sees a key."""
    inputs, mask = {"tokens": torch.randn(batch, length, 64)}, MASKS[kind](batch, length)
    if mask is not None and mask.dtype == torch.bool:
        mask[..., 0] = True
    return inputs if mask is None else {**inputs, "mask": mask}


@pytest.mark.parametrize(
    ("kind", "config"),
    [
        ("none", "heads"),
        ("is_causal", "heads"),
        ("causal", "grouped queries"),
        ("padded", "heads"),
        ("arbitrary", "grouped queries"),
        ("a bias for each head", "grouped queries"),
    ],
)
def test_masks_and_groups(tmp_path, kind, config):
    model = Masked(CONFIGS[config], kind == "is_causal").eval()
    kind = "none" if kind == "is_causal" else kind
    compiled = torch.compile(model, backend=Backend())
    path, inputs = tmp_path / "model.onnx", masked_inputs(3, 6, kind)
    write_onnx(model, inputs, path, {})
    for target in TARGETS:
        check(model, compile_model(path, target), inputs)
    with torch.no_grad():
        torch.testing.assert_close(compiled(**inputs), model(**inputs), rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", ["none", "is_causal", "arbitrary"])
def test_gradients_through_attention(kind):
    def attend(q, k, v):
        return functional.scaled_dot_product_attention(q, k, v, mask, is_causal=kind == "is_causal")

    mask, gradients = None, []
    if kind == "arbitrary":
        mask = MASKS[kind](2, 5)
        mask[..., 0] = True
    tensors = [torch.randn(2, 4, 5, 16) for _ in range(3)]
    for function in (torch.compile(attend, backend=Backend()), attend):
        inputs = [x.clone().requires_grad_() for x in tensors]
        function(*inputs).square().sum().backward()
        gradients.append([x.grad for x in inputs])
    torch.testing.assert_close(*gradients, rtol=1e-4, atol=1e-5)
