"""Whole transformers: our target "cpu" against ONNX Runtime, OpenVINO and torch, in the same rounds.

The models are built in torch with random weights and written by torch's exporter. A prefill has a fixed number of
tokens and no cache; a decode step has one token, and a cache of a dynamic length as its inputs and, one token longer,
as its outputs. A ratio is another alternative's time divided by ours: above 1, ours is faster.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.bench.model import (
    OURS,
    TORCH,
    Alternatives,
    Inputs,
    add_inductor,
    call_of,
    check_outputs,
    executable_of,
    macs,
    onnx_runtime,
    openvino,
    qualities,
    seeded,
    torch_eager,
)
from mlhood.compiler.bench.process import ONNX_RUNTIME
from mlhood.compiler.bench.times import NetworkTimes
from mlhood.compiler.compile import Executable
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.operators.quantized import BlockDense
from mlhood.compiler.quantize import quantize_weights
from mlhood.compiler.quantize.report import constant_bytes
from mlhood.compiler.quantize.weights import INT4, INT8
from mlhood.errors import CompilerError, nearest
from mlhood.exchange import silence
from mlhood.measure import compare
from mlhood.models import transformers
from mlhood.models.transformers import Config, Decoder

STEPS = 8  # of a growing cache, for the number of compilations
OPTIMISED = "onnxruntime optimised"
GROWING = f"{OURS}, growing cache"
FORMATS = (INT8, INT4)
_TRACED_PAST = 3
_GROWTH = 32  # of a cache, after which it starts again


@dataclass(frozen=True)
class TransformerCase:
    """A model at one size.

    Args:
        build: Returns the model for a configuration.
        config: Its real size.
        tokens: Number of tokens that a run computes.
        past: Number of tokens in the cache of a decoder; 0 for a run without a cache.
    """

    build: Callable[[Config], Any]
    config: Config
    tokens: int
    past: int = 0


CASES = {
    "gpt2-prefill-128": TransformerCase(transformers.gpt2, transformers.GPT2, 128),
    "gpt2-decode-128": TransformerCase(transformers.gpt2, transformers.GPT2, 1, 128),
    "gpt2-decode-1024": TransformerCase(transformers.gpt2, transformers.GPT2, 1, 1024),
    "bert-128": TransformerCase(transformers.bert, transformers.BERT, 128),
    "vit": TransformerCase(transformers.vit, transformers.VIT, 197),
    "llama-prefill-128": TransformerCase(transformers.llama, transformers.LLAMA, 128),
    "llama-decode-1024": TransformerCase(transformers.llama, transformers.LLAMA, 1, 1024),
    "whisper": TransformerCase(transformers.whisper, transformers.WHISPER, 1500),
}


def write_onnx(model: nn.Module, inputs: Mapping[str, torch.Tensor], path: Path, dynamic: Mapping[int, str]) -> None:
    """Write a model with torch's exporter, the axes of its past named by `dynamic`, the others fixed.

    Args:
        model: Of `mlhood.models.transformers`.
        inputs: Of its `example`; the dynamic axes must not have length 1.
        path: The file to write.
        dynamic: Names of dynamic axes of each input by number: of the batch 0, of words 1, of a cache 2.
    """
    past = [name for name in inputs if name.startswith("past")]
    axes = {
        name: {i: label for i, label in dynamic.items() if i in ((0, 2) if name in past else (0, 1))} for name in inputs
    }
    shapes: list[Any] = [axes[name] for name in inputs if name not in past]
    with silence():
        torch.onnx.export(
            model,
            tuple(inputs.values()),
            path,
            input_names=list(inputs),
            dynamic_shapes=(*shapes, tuple(axes[name] for name in past)) if past else tuple(shapes),
            dynamo=True,
            external_data=False,
            verbose=False,
        )


def measure(
    names: Sequence[str],
    *,
    threads: int = 1,
    layers: int | None = None,
    rounds: int = 21,
    peak: float,
    bandwidth: float | None = None,
    inductor: bool = True,
    small: bool = True,
) -> Iterator[NetworkTimes]:
    """Measure models, one after another.

    Args:
        names: Keys of `CASES`.
        threads: Threads of every alternative.
        layers: Number of layers; by default as many as the real model has.
        rounds: Rounds, at least 21, in each of which every alternative is timed once.
        peak: float32 operations per second of these threads.
        bandwidth: Bytes per second that these threads can read from memory.
        inductor: Also time what torch.compile makes of the model.
        small: Also time decode steps with weights of 8 and 4 bits, beside ONNX Runtime's.

    Raises:
        CompilerError: A name is unknown.
        MeasureError: An output differs from ONNX Runtime's, or there are too few rounds.
    """
    unknown = [name for name in names if name not in CASES]
    if unknown:
        raise CompilerError(
            "unknown case", expected=", ".join(CASES), got=", ".join(unknown), todo=nearest(unknown[0], CASES)
        )
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = _measure(name, Path(folder), threads, layers, rounds, peak, inductor, small)
            yield replace(row, bandwidth=bandwidth)


def _measure(
    name: str, folder: Path, threads: int, layers: int | None, rounds: int, peak: float, inductor: bool, small: bool
) -> NetworkTimes:
    case = CASES[name]
    config = case.config if layers is None else replace(case.config, layers=layers)
    model: Any = seeded(lambda: case.build(config))
    write_onnx(
        model, model.example(1, case.tokens, case.past and _TRACED_PAST), path := folder / "model.onnx", {2: "past"}
    )
    inputs = {name: x.numpy() for name, x in model.example(1, case.tokens, case.past).items()}
    start = time.perf_counter()
    ours = executable_of(compile_model(path, OURS))
    ours.run(**inputs)
    compilation = {"with imports": time.perf_counter() - start}
    alternatives: Alternatives = {
        ONNX_RUNTIME: onnx_runtime(path, threads, inputs),
        OURS: call_of(ours, inputs),
        **openvino(path, threads, inputs),
        TORCH: torch_eager(model, *inputs.values()),
    }
    notes = [] if find_spec("openvino") else ["OpenVINO is not installed"]
    try:
        alternatives[OPTIMISED], note = _optimised(path, config, threads, inputs)
        notes.append(note)
    except Exception as error:  # whatever its passes raise, the others are still compared
        notes.append(f"{OPTIMISED} cannot run it: {type(error).__name__}: {str(error).splitlines()[0][:100]}")
    if inductor:
        notes += add_inductor(alternatives, model, threads, *inputs.values())
    check_outputs(alternatives, 1e-3)  # ONNX Runtime's optimiser approximates GELU
    moved = dict.fromkeys(alternatives, needed_bytes(model, inputs, case.tokens))
    quality: dict[str, float] = {}
    if small and case.past:
        optimized = next(stage.graph for stage in ours.stages if stage.name == "optimized")
        approximations, saved = _small_weights(optimized, path, threads, inputs)
        quality = qualities(alternatives[ONNX_RUNTIME](), approximations)
        if getattr(model, "words", None) is not None:
            notes.append(_perplexities(alternatives[ONNX_RUNTIME](), approximations))
        alternatives |= approximations
        moved |= {name: moved[OURS] - size for name, size in saved.items()}
    if case.past:
        alternatives[GROWING], moved[GROWING] = _steps_in_place(path, inputs), moved[OURS]
    flops = 2 * macs(ours.graph, {"past": case.past})
    result = compare(alternatives, flops=flops, rounds=rounds, threads=threads, check=False)
    if case.past:
        notes.append(growth(ours, model, case))
    return NetworkTimes(
        name,
        1,
        OURS,
        flops,
        result,
        peak,
        nodes={stage.name: len(stage.graph.nodes) for stage in ours.stages},
        constants={OURS: constant_bytes(ours.graph)},
        activations={OURS: ours.runner.activation_bytes or 0} if isinstance(ours.runner, Cpu) else {},
        compilation=compilation,
        moved=moved,
        quality=quality,
        tokens=case.tokens,
        notes=tuple(notes),
    )


def needed_bytes(model: nn.Module, inputs: Inputs, tokens: int) -> int:
    """Return the bytes that a run must read and write at least: weights and inputs once, and the cache's new entries.

    Of an embedding only the rows of the tokens are read, unless it also gives the logits; what a cache held before need
    not be copied.
    """
    total = sum(4 * weight.numel() for weight in model.parameters()) + sum(x.nbytes for x in inputs.values())
    tables = [module for module in model.modules() if isinstance(module, nn.Embedding)]
    for table in tables[1:] if isinstance(model, Decoder) else tables:
        total -= 4 * (table.num_embeddings - tokens) * table.embedding_dim
    return total


def _small_weights(optimized: Graph, path: Path, threads: int, inputs: Inputs) -> tuple[Alternatives, dict[str, int]]:
    """Return runs with small weights, ours and ONNX Runtime's, and by how many bytes they have less to read."""
    from onnxruntime.quantization.matmul_nbits_quantizer import DefaultWeightOnlyQuantConfig, MatMulNBitsQuantizer

    alternatives: Alternatives = {}
    saved = {}
    for form in FORMATS:
        graph = optimized.copy()
        quantize_weights(graph, form)
        name = f"{OURS} int{form.bits}"
        saved[name] = sum(_saved_bytes(node, form.bits) for node in graph.nodes.values())
        alternatives[name] = call_of(Cpu(graph), inputs)
        # ONNX Runtime has no scale for each channel here: 32 weights share one
        options = DefaultWeightOnlyQuantConfig(block_size=32, is_symmetric=True, accuracy_level=1, bits=form.bits)
        with silence():
            quantizer: Any = MatMulNBitsQuantizer(onnx.load(path), algo_config=options)
            quantizer.process()
            quantizer.model.save_model_to_file(str(target := path.with_name(f"int{form.bits}.onnx")))
        alternatives[f"{ONNX_RUNTIME} int{form.bits}"] = onnx_runtime(target, threads, inputs)
    return alternatives, saved


def _steps_in_place(path: Path, inputs: Inputs) -> Callable[[], Any]:
    """Return a decode step that appends to the cache of the step before: each one has a new length, up to a limit."""
    executable, state = executable_of(compile_model(path, OURS)), dict(inputs)
    executable.grow_in_place()
    past = [name for name in inputs if name.startswith("past")]
    limit = inputs[past[0]].shape[2] + _GROWTH

    def step() -> Any:
        if state[past[0]].shape[2] == limit:
            state.update(inputs)
        logits, *cache = executable.run(state).values()
        state.update(zip(past, cache, strict=True))
        return logits

    step()
    return step


def _saved_bytes(node: Node, bits: int) -> int:
    if not isinstance(node.operator, BlockDense):
        return 0
    w, scale = (value.type.size if value else 0 for value in node.inputs[1:3])
    return int(w) * (32 - bits) // 8 - 4 * int(scale)


def perplexity(expected: np.ndarray, logits: np.ndarray) -> float:
    """Return the perplexity of a model on text that another one draws: exp of the mean of -sum p log q.

    Args:
        expected: Logits of the model that draws the text, float32 [N, T, vocabulary].
        logits: Those of the model that predicts it.
    """
    p, q = (x.astype(np.float64) - x.max(axis=-1, keepdims=True) for x in (expected, logits))
    p, q = (x - np.log(np.exp(x).sum(axis=-1, keepdims=True)) for x in (p, q))
    return float(np.exp(-(np.exp(p) * q).sum(axis=-1).mean()))


def _perplexities(expected: np.ndarray, approximations: Alternatives) -> str:
    values = {"float32": expected, **{name: np.asarray(call()) for name, call in approximations.items()}}
    told = ", ".join(f"{name} {perplexity(expected, logits):,.2f}" for name, logits in values.items())
    return f"perplexity on text that the float32 model draws: {told}"


def growth(ours: Executable, model: Any, case: TransformerCase) -> str:
    """Run steps of a growing cache; return how many programs were compiled for them, and what steps took."""
    runner = ours.runner
    if not isinstance(runner, Cpu):
        return ""
    before, seconds = runner.compilations, []
    for past in range(case.past + 1, case.past + 1 + STEPS):
        inputs = {name: x.numpy() for name, x in model.example(1, case.tokens, past).items()}
        times = [time.perf_counter()]
        for _ in range(2):
            ours.run(**inputs)
            times.append(time.perf_counter())
        seconds.append(np.diff(times))
    first, again = 1e3 * np.median(seconds, axis=0)
    return (
        f"{STEPS} steps of a growing cache: {runner.compilations - before} compilations, "
        f"{first:.1f} ms for the first step of a length, {again:.1f} ms for another one"
    )


def _optimised(path: Path, config: Config, threads: int, inputs: Inputs) -> tuple[Callable[[], Any], str]:
    """Return a run of what ONNX Runtime's optimiser of transformers makes of a model, and what it fuses."""
    from onnxruntime.transformers import optimizer

    target = path.with_name("optimised.onnx")
    with silence():
        fused = optimizer.optimize_model(
            str(path), "gpt2", num_heads=config.heads, hidden_size=config.width, opt_level=1
        )
        fused.save_model_to_file(str(target))
        counts = {name: count for name, count in fused.get_fused_operator_statistics().items() if count}
    told = ", ".join(f"{count} {name}" for name, count in counts.items()) or "nothing"
    return onnx_runtime(target, threads, inputs), f"ONNX Runtime's optimiser of transformers fuses {told}"
