"""From torch to ONNX: one file, the same bytes each time, and not a word."""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import torch
from torch import nn

from mlhood.errors import ExchangeError
from mlhood.exchange.tidy import keep_batchnorm_graph, tidy
from mlhood.files.atomic import check_output, write_whole
from mlhood.models.training import mode

OPSET = 20
OLDEST_OPSET = 18


def export(
    model: nn.Module,
    example: Any,
    path: str | Path,
    *,
    input_names: Sequence[str] = ("image",),
    output_names: Sequence[str] = ("logits",),
    dynamic_batch: bool = True,
    keep_batchnorm: bool = False,
    opset: int = OPSET,
) -> Path:
    """Write `model` in evaluation mode to one self-contained ONNX file.

    Silent and deterministic: the same model gives the same bytes. Nodes and their outputs are named after the
    modules (`conv1`, `layer1.0.relu`), and no path of this machine goes into the file.

    Args:
        model: The network; its modes (train or eval) are as before when this returns.
        example: One input, or a tuple of them: tensors or arrays, the first axis is the batch.
        path: The file to write, in a folder that exists.
        input_names: A name for each input of `forward`.
        output_names: A name for each output.
        dynamic_batch: Call the first axis of every input "batch" and leave it open; otherwise it is the
            example's.
        keep_batchnorm: Leave BatchNormalization nodes instead of folding them into the convolutions.
        opset: Version of ONNX's operator set, 18 or newer.

    Returns:
        `path`, as a `Path`.

    Raises:
        ExchangeError: The model cannot be traced, or the names do not fit it.
        OutputError: The file cannot be written; nothing half-written is left.
    """
    path = Path(path)
    check_output(path)
    inputs = _inputs(example, dynamic_batch)
    _check_names(inputs, input_names, output_names, opset)
    with mode(model, training=False), silence():
        program = _trace(model, inputs, tuple(input_names), tuple(output_names), dynamic_batch, keep_batchnorm, opset)
        graph = keep_batchnorm_graph(program.model) if keep_batchnorm else program.model
        proto = tidy(graph)
    _check_result(proto, input_names, output_names, opset)
    return write_whole(path, proto.SerializeToString(deterministic=True))


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Keep prints, warnings and log lines of a library in; all is as before afterwards."""
    before = logging.root.manager.disable
    trace = logging.getLogger("torch.__trace")  # writes past logging.disable
    traced = trace.disabled
    trace.disabled = True
    logging.disable(logging.CRITICAL)
    try:
        with (
            warnings.catch_warnings(),
            contextlib.redirect_stdout(io.StringIO()),
            contextlib.redirect_stderr(io.StringIO()),
        ):
            warnings.simplefilter("ignore")
            yield
    finally:
        logging.disable(before)
        trace.disabled = traced


def _trace(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    input_names: tuple[str, ...],
    output_names: tuple[str, ...],
    dynamic_batch: bool,
    keep_batchnorm: bool,
    opset: int,
) -> torch.onnx.ONNXProgram:
    batch = torch.export.Dim("batch")
    try:
        program = torch.onnx.export(
            model,
            inputs,
            input_names=input_names,
            output_names=output_names,
            opset_version=opset,
            dynamic_shapes=tuple({0: batch} for _ in inputs) if dynamic_batch else None,
            dynamo=True,
            optimize=not keep_batchnorm,
            verbose=False,
        )
    except Exception as error:  # the exporter raises whatever the model, torch.export or its rules do
        raise ExchangeError(
            "torch cannot export this model",
            where=type(model).__name__,
            got=_cause(error),
            todo="check that the model runs on the example; in `forward` write no fixed batch size "
            "(torch.flatten(x, 1) instead of x.view(1, -1)) and do not branch on values",
        ) from error
    if program is None:
        raise ExchangeError("torch exported nothing", where=type(model).__name__)
    return program


def _inputs(example: Any, dynamic_batch: bool) -> tuple[torch.Tensor, ...]:
    parts = example if isinstance(example, (tuple, list)) else (example,)
    tensors = tuple(part.detach() if isinstance(part, torch.Tensor) else _tensor(part) for part in parts)
    if not tensors or any(tensor.ndim == 0 or len(tensor) == 0 for tensor in tensors):
        raise ExchangeError(
            "the example must be at least one input with a batch axis",
            got=[list(tensor.shape) for tensor in tensors],
            todo="give for example torch.zeros(1, 1, 32, 32)",
        )
    if not dynamic_batch:
        return tensors
    # A batch of one would be taken for a constant: models that only work for one image would go through.
    return tuple(torch.cat([tensor, tensor]) if len(tensor) == 1 else tensor for tensor in tensors)


def _tensor(values: Any) -> torch.Tensor:
    try:
        return torch.tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise ExchangeError(
            "the example is no tensor",
            expected="a torch tensor, an array, or a tuple of them",
            got=type(values).__name__,
        ) from error


def _check_names(
    inputs: tuple[torch.Tensor, ...], input_names: Sequence[str], output_names: Sequence[str], opset: int
) -> None:
    names = [*input_names, *output_names]
    if isinstance(input_names, str) or isinstance(output_names, str):
        raise ExchangeError("names must be a tuple of strings", got=f"{input_names!r}, {output_names!r}")
    if len(input_names) != len(inputs):
        raise ExchangeError("each input needs a name", expected=f"{len(inputs)} names", got=list(input_names))
    if len(set(names)) != len(names) or not all(names):
        raise ExchangeError("names of inputs and outputs must differ and not be empty", got=names)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ExchangeError(
            "torch does not export to this opset",
            expected=f"{OLDEST_OPSET} to {newest}",
            got=opset,
            todo=f"use {OPSET}",
        )


def _check_result(proto: onnx.ModelProto, input_names: Sequence[str], output_names: Sequence[str], opset: int) -> None:
    got = [value.name for value in proto.graph.input], [value.name for value in proto.graph.output]
    if got != (list(input_names), list(output_names)):
        raise ExchangeError(
            "the exported graph has other inputs or outputs than named",
            expected=f"{list(input_names)} -> {list(output_names)}",
            got=f"{got[0]} -> {got[1]}",
            todo="name as many outputs as the model returns; an input that the model ignores is dropped",
        )
    version = next((entry.version for entry in proto.opset_import if entry.domain == ""), None)
    if version != opset:
        raise ExchangeError("torch could not convert to this opset", expected=opset, got=version, todo=f"use {OPSET}")
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        raise ExchangeError("the exported graph is not valid", got=_cause(error)) from error


def _cause(error: BaseException) -> str:
    """Return the first sentence of the innermost error: the one that the author of the model can act on."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__
