"""Whole models: our targets against torch, ONNX Runtime, XLA, and OpenVINO if it is installed, in the same rounds.

A decode step of a transformer has one token, and a cache as its inputs and, one token longer, as its outputs.

A ratio is another alternative's time divided by that of our first target: above 1, ours is faster. Before they are
timed, the outputs are compared with ONNX Runtime's; those of int8 models by their SQNR.
"""

from __future__ import annotations

import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from importlib import import_module
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from mlhood.compiler.backends.targets import TARGETS
from mlhood.compiler.backends.timing import moved_bytes
from mlhood.compiler.bench.process import compile_times
from mlhood.compiler.bench.times import NetworkTimes
from mlhood.compiler.compile import Executable
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import random_inputs
from mlhood.compiler.quantize import Recipe, sqnr
from mlhood.compiler.quantize.report import constant_bytes
from mlhood.errors import CompilerError, MeasureError, nearest
from mlhood.exchange import export, silence
from mlhood.measure import compare, session_options
from mlhood.measure import threads as threads_of
from mlhood.measure.agreement import arrays, check_agreement
from mlhood.models import LeNet, gpt_block, mobilenet_v2, resnet18, resnet50, transformers, vit_block
from mlhood.models.transformers import GPT_TOKENS, VIT_TOKENS

if TYPE_CHECKING:
    import torch
    from torch import nn

ONNX_RUNTIME, TORCH, INDUCTOR, INT8 = "onnxruntime", "torch", "torch inductor", "int8"
OURS = "cpu" if "cpu" in TARGETS else "direct"
XLA = "xla"
RECIPE = Recipe("symmetric", per_channel=True)
CALIBRATION_BATCHES = 4
LEAST_SQNR = 6.0  # dB: the noise has half the signal's amplitude
RTOL = 1e-3
Inputs = dict[str, np.ndarray]
Alternatives = dict[str, Callable[[], np.ndarray]]


@dataclass(frozen=True)
class Network:
    """A network to measure.

    Args:
        build: Returns it with random weights.
        shape: Of its input, without the batch; of a transformer the number of tokens, and of those in its cache.
        names: Of its input and its output; none for a transformer, which has an example of its inputs.
    """

    build: Callable[[], Any]
    shape: tuple[int, ...]
    names: tuple[str, ...] = ("image", "logits")

    def write(self, model: Any, path: Path) -> Path:
        """Write a model that `build` returned, with a dynamic batch; return the path."""
        if self.names:
            example, (x, y) = np.zeros((1, *self.shape), np.float32), self.names
            return export(model, example, path, input_names=[x], output_names=[y])
        return write_onnx(model, model.example(2, *self.shape), path, {0: "batch"})


_TOKENS = ("tokens", "features")
NETWORKS = {
    "lenet": Network(LeNet, (1, 32, 32)),
    "resnet18": Network(resnet18, (3, 224, 224)),
    "resnet50": Network(resnet50, (3, 224, 224)),
    "mobilenet_v2": Network(mobilenet_v2, (3, 224, 224)),
    "vit_block": Network(vit_block, (VIT_TOKENS, 192), _TOKENS),
    "gpt_block": Network(gpt_block, (GPT_TOKENS, 768), _TOKENS),
    "gpt2-prefill-128": Network(transformers.gpt2, (128,), ()),
    "gpt2-decode-128": Network(transformers.gpt2, (1, 128), ()),
    "gpt2-decode-1024": Network(transformers.gpt2, (1, 1024), ()),
    "bert-128": Network(transformers.bert, (128,), ()),
    "vit": Network(transformers.vit, (197,), ()),
    "llama-prefill-128": Network(transformers.llama, (128,), ()),
    "llama-decode-1024": Network(transformers.llama, (1, 1024), ()),
    "whisper": Network(transformers.whisper, (1500,), ()),
}


def measure(
    names: Sequence[str],
    *,
    threads: int = 1,
    batch: int = 1,
    rounds: int = 21,
    peak: float,
    bandwidth: float | None = None,
    int8: bool = False,
    inductor: bool = False,
    targets: Sequence[str] = (),
) -> Iterator[NetworkTimes]:
    """Measure networks, one after another.

    Args:
        names: Keys of `NETWORKS`.
        threads: Threads of every alternative; XLA's were fixed when its process started.
        batch: Number of examples.
        rounds: Rounds, at least 21, in each of which every alternative is timed once.
        peak: float32 operations per second of these threads, see `mlhood.measure.peak`.
        bandwidth: Bytes per second that these threads read and write in memory, see `mlhood.measure.ceilings`.
        int8: Also measure quantised models: ours, and ONNX Runtime's.
        inductor: Also measure what torch.compile makes of the networks.
        targets: Keys of `TARGETS`; by default `OURS`, and XLA if it can run the network.

    Raises:
        CompilerError: A network or target is unknown, or the first target cannot run a network.
        MeasureError: An output differs from ONNX Runtime's, or there are too few rounds.
    """
    unknown = [name for name in names if name not in NETWORKS]
    if unknown:
        raise CompilerError(
            "unknown network", expected=", ".join(NETWORKS), got=", ".join(unknown), todo=nearest(unknown[0], NETWORKS)
        )
    targets = targets or (OURS, *([XLA] if XLA in TARGETS else []))
    for name in names:
        with tempfile.TemporaryDirectory() as folder:
            row = _measure(name, Path(folder), threads, batch, rounds, peak, int8, inductor, targets)
            yield replace(row, bandwidth=bandwidth)


def _measure(
    name: str,
    folder: Path,
    threads: int,
    batch: int,
    rounds: int,
    peak: float,
    int8: bool,
    inductor: bool,
    targets: Sequence[str],
) -> NetworkTimes:
    network = NETWORKS[name]
    model = seeded(network.build)
    path = network.write(model, folder / "model.onnx")
    prepared, refused = _prepare(path, targets)
    ours = prepared[targets[0]]
    inputs = _inputs(ours.graph, batch)
    alternatives: Alternatives = {
        ONNX_RUNTIME: onnx_runtime(path, threads, inputs),
        **{target: call_of(executable, inputs) for target, executable in prepared.items()},
        **openvino(path, threads, inputs),
        TORCH: torch_eager(model, *inputs.values()),
    }
    notes = add_inductor(alternatives, model, threads, *inputs.values()) if inductor else []
    check_outputs(alternatives, 1e-4 if network.names else 1e-3)  # transformers are deeper
    executables, quality = dict(prepared), {}
    if int8:
        executables[f"{targets[0]} {INT8}"], approximations = _quantized(ours.graph, path, targets[0], threads, inputs)
        quality = qualities(alternatives[ONNX_RUNTIME](), approximations)
        alternatives |= approximations
    flops = 2 * macs(ours.graph, {"batch": batch})
    result = compare(alternatives, flops=flops, rounds=rounds, threads=threads, check=False)
    # XLA's graph is not what it executes: it fuses operators
    counted = {target: executable for target, executable in executables.items() if target != XLA}
    return NetworkTimes(
        name,
        batch,
        targets[0],
        flops,
        result,
        peak,
        nodes={stage.name: len(stage.graph.nodes) for stage in ours.stages},
        constants={target: constant_bytes(executable.graph) for target, executable in executables.items()},
        activations=_activations(executables),
        compilation=compile_times(path, targets[0], batch),
        moved={target: moved_bytes(executable.runner, inputs) for target, executable in counted.items()},
        quality=quality,
        refused=refused,
        notes=tuple(notes),
    )


def _quantized(graph: Graph, path: Path, target: str, threads: int, inputs: Inputs) -> tuple[Executable, Alternatives]:
    """Return our quantised model of a float one, and the two to time: ours and ONNX Runtime's, calibrated alike."""
    batch = len(next(iter(inputs.values())))
    batches = [_inputs(graph, batch, seed) for seed in range(1, CALIBRATION_BATCHES + 1)]
    quantize_with_onnx_runtime(path, baseline := path.with_name("int8.onnx"), batches)
    ours = executable_of(compile_model(path, target, RECIPE, calibration=batches))
    return ours, {
        f"{target} {INT8}": call_of(ours, inputs),
        f"{ONNX_RUNTIME} {INT8}": onnx_runtime(baseline, threads, inputs),
    }


def write_onnx(model: nn.Module, inputs: Mapping[str, torch.Tensor], path: Path, dynamic: Mapping[int, str]) -> Path:
    """Write a model with torch's exporter, the axes named by `dynamic`, the others fixed; return the path.

    Args:
        model: Of `mlhood.models.transformers`.
        inputs: Of its `example`; the dynamic axes must not have length 1.
        path: The file to write.
        dynamic: Names of dynamic axes of each input by number: of the batch 0, of words 1, of a cache 2.
    """
    import torch

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
    return path


def seeded(build: Callable[[], Any]) -> Any:
    """Return a network in evaluation mode, always with the same random weights."""
    import torch

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(0)
        return build().eval()


def _prepare(path: Path, targets: Sequence[str]) -> tuple[dict[str, Executable], dict[str, str]]:
    """Return the model for each target, and why a target other than the first refuses it."""
    prepared: dict[str, Executable] = {}
    refused: dict[str, str] = {}
    for target in targets:
        try:
            prepared[target] = executable_of(compile_model(path, target))
        except CompilerError as error:
            if target == targets[0]:
                raise
            refused[target] = error.one_line()
    return prepared, refused


def executable_of(compiled: object) -> Executable:
    """Return what was compiled to the end."""
    if isinstance(compiled, Executable):
        return compiled
    raise CompilerError("the model was not compiled to the end", got=type(compiled).__name__)


def _inputs(graph: Graph, batch: int, seed: int = 0) -> Inputs:
    types = {name: value.type for name, value in graph.placeholders.items()}
    return random_inputs(types, {"batch": batch}, seed)


def call_of(executable: Executable, inputs: Inputs) -> Callable[[], np.ndarray]:
    """Return a run of ours, which returns the first result."""
    return lambda: next(iter(executable.run(inputs).values()))


def torch_eager(model: Callable[..., Any], *inputs: np.ndarray) -> Callable[[], Any]:
    """Return a run of a module of torch, or of what compiles it, which returns the first result."""
    import torch

    tensors = [torch.from_numpy(x) for x in inputs]

    def call() -> Any:
        with torch.inference_mode():
            y = model(*tensors)
            return y[0] if isinstance(y, tuple) else y

    return call


def add_inductor(alternatives: Alternatives, model: nn.Module, count: int, *inputs: np.ndarray) -> list[str]:
    """Add a run of what torch's inductor compiles for a number of threads; return why not, if it cannot."""
    import torch

    try:
        with silence(), threads_of(count):
            call = torch_eager(torch.compile(model, fullgraph=True, dynamic=False), *inputs)
            call()  # which compiles it
    except Exception as error:  # whatever its compilers raise, the others are still compared
        return [f"{INDUCTOR} cannot run it: {type(error).__name__}: {str(error).splitlines()[0][:100]}"]
    alternatives[INDUCTOR] = call
    return []


def onnx_runtime(path: Path, threads: int, inputs: Inputs) -> Callable[[], Any]:
    """Return a run of ONNX Runtime, with all its optimisations, which are its default."""
    import onnxruntime

    session = onnxruntime.InferenceSession(path, session_options(threads), providers=["CPUExecutionProvider"])
    return lambda: session.run(None, inputs)[0]


def openvino(path: Path, threads: int, inputs: Inputs) -> Alternatives:
    """Return a run of OpenVINO in float32, if it is installed."""
    if find_spec("openvino") is None:
        return {}
    core = import_module("openvino").Core()
    settings = {"INFERENCE_NUM_THREADS": threads, "INFERENCE_PRECISION_HINT": "f32", "PERFORMANCE_HINT": "LATENCY"}
    request = core.compile_model(path, "CPU", settings).create_infer_request()
    return {"OpenVINO": lambda: request.infer(inputs)[0]}


def quantize_with_onnx_runtime(path: Path, target: Path, batches: Sequence[Inputs]) -> None:
    """Write a model that ONNX Runtime has quantised: QDQ, int8, a scale for each output channel of the weights.

    Args:
        path: The float model.
        target: The file to write.
        batches: Calibration data: the inputs of one run each.
    """
    from onnxruntime.quantization import CalibrationDataReader, QuantFormat, QuantType, quantize_static

    class Reader(CalibrationDataReader):
        def __init__(self) -> None:
            self.batches = iter(batches)

        def get_next(self) -> Any:
            return next(self.batches, None)

    with silence():
        quantize_static(
            path,
            target,
            Reader(),
            quant_format=QuantFormat.QDQ,
            per_channel=True,
            activation_type=QuantType.QInt8,
            weight_type=QuantType.QInt8,
        )


def check_outputs(alternatives: Alternatives, atol: float) -> None:
    """Check that all alternatives agree with ONNX Runtime, to `atol` of its largest element."""
    outputs = {name: arrays(call()) for name, call in alternatives.items()}
    expected = outputs.pop(ONNX_RUNTIME)
    for name, output in outputs.items():
        check_agreement((ONNX_RUNTIME, expected), (name, output), RTOL, atol)


def qualities(expected: np.ndarray, approximations: Alternatives) -> dict[str, float]:
    """Return the SQNR of approximations in dB; raise MeasureError if one is no approximation."""
    decibels = {name: sqnr(expected, np.asarray(call())) for name, call in approximations.items()}
    for name, value in decibels.items():
        if value < LEAST_SQNR:
            raise MeasureError(
                "the quantised model does not approximate the float model",
                where=repr(name),
                expected=f"an SQNR of {LEAST_SQNR} dB at least",
                got=f"{value:.1f} dB",
                todo="find the layer: mlhood compile MODEL --quantize symmetric --compare TARGET",
            )
    return decibels


def macs(graph: Graph, dims: Mapping[str, int]) -> int:
    """Return the multiply-accumulates of a graph with these lengths of its dynamic axes."""
    static = graph.copy(dims)
    total = 0
    for node in static.topological():
        inputs: list[Any] = [() if value is None else value.type.shape for value in node.inputs]
        output: Any = node.outputs[0].type.shape
        total += node.operator.macs(inputs, output) or 0
    return total


def _activations(executables: Mapping[str, Executable]) -> dict[str, int]:
    """Return the peak bytes of activations of those targets whose runner has an attribute `activation_bytes`."""
    told = {name: getattr(executable.runner, "activation_bytes", None) for name, executable in executables.items()}
    return {name: int(size) for name, size in told.items() if size is not None}
