"""Export from torch to ONNX: self-contained, deterministic, silent.

torch's graph is cleaned up before it is written (`torch_graph`): readable names, no metadata of this machine.
"""

from __future__ import annotations

import contextlib
import io
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import onnx

from mlhood.errors import ExchangeError
from mlhood.files.atomic import check_output, write_atomic

if TYPE_CHECKING:
    import torch
    from torch import nn

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
    modules (`conv1`, `layer1.0.relu`), and the file contains no path of this machine.

    Args:
        model: The network; the mode (train or eval) of each module is restored.
        example: One input, or a tuple of them: tensors or arrays whose first axis is the batch.
        path: The file to write, in an existing folder.
        input_names: A name for each input of `forward`.
        output_names: A name for each output.
        dynamic_batch: Make the first axis of every input dynamic and name it "batch"; otherwise it has the
            example's size.
        keep_batchnorm: Keep BatchNormalization nodes instead of folding them into the convolutions.
        opset: Version of ONNX's operator set, 18 or newer.

    Returns:
        `path`, as a `Path`.

    Raises:
        ExchangeError: The model cannot be traced, or the names do not match its inputs and outputs.
        OutputError: The file cannot be written; no partial file is left.
    """
    from mlhood.exchange import torch_graph  # loads torch, which reading a file does not need
    from mlhood.models.training import mode

    path = Path(path)
    check_output(path)
    inputs = torch_graph.example_inputs(example, dynamic_batch)
    _check_names(inputs, input_names, output_names, opset)
    with mode(model, training=False), silence():
        names = tuple(input_names), tuple(output_names)
        program = torch_graph.trace(model, inputs, *names, dynamic_batch, keep_batchnorm, opset)
        graph = torch_graph.simplify(program.model) if keep_batchnorm else program.model
        proto = torch_graph.tidy(graph)
    _check_result(proto, input_names, output_names, opset)
    return write_atomic(path, proto.SerializeToString(deterministic=True))


@contextlib.contextmanager
def silence() -> Iterator[None]:
    """Suppress prints, warnings and log records inside the block; restore all settings afterwards."""
    disabled_level = logging.root.manager.disable
    trace_logger = logging.getLogger("torch.__trace")  # ignores logging.disable
    trace_disabled = trace_logger.disabled
    trace_logger.disabled = True
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
        logging.disable(disabled_level)
        trace_logger.disabled = trace_disabled


def _check_names(
    inputs: tuple[torch.Tensor, ...], input_names: Sequence[str], output_names: Sequence[str], opset: int
) -> None:
    names = [*input_names, *output_names]
    if isinstance(input_names, str) or isinstance(output_names, str):
        raise ExchangeError("names must be given as a tuple of strings", got=f"{input_names!r}, {output_names!r}")
    if len(input_names) != len(inputs):
        raise ExchangeError("each input must have a name", expected=f"{len(inputs)} names", got=list(input_names))
    if len(set(names)) != len(names) or not all(names):
        raise ExchangeError("names of inputs and outputs must be unique and non-empty", got=names)
    newest = onnx.defs.onnx_opset_version()
    if not OLDEST_OPSET <= opset <= newest:
        raise ExchangeError(
            "torch does not export to this opset",
            expected=f"{OLDEST_OPSET} to {newest}",
            got=opset,
            todo=f"use {OPSET}",
        )


def _check_result(proto: onnx.ModelProto, input_names: Sequence[str], output_names: Sequence[str], opset: int) -> None:
    inputs, outputs = [value.name for value in proto.graph.input], [value.name for value in proto.graph.output]
    if (inputs, outputs) != (list(input_names), list(output_names)):
        raise ExchangeError(
            "the inputs or outputs of the exported graph do not match the given names",
            expected=f"{list(input_names)} -> {list(output_names)}",
            got=f"{inputs} -> {outputs}",
            todo="give one name per output that the model returns; unused inputs are dropped",
        )
    version = next((entry.version for entry in proto.opset_import if entry.domain == ""), None)
    if version != opset:
        raise ExchangeError("torch could not convert to this opset", expected=opset, got=version, todo=f"use {OPSET}")
    try:
        onnx.checker.check_model(proto)
    except (onnx.checker.ValidationError, ValueError) as error:
        from mlhood.exchange.torch_graph import cause

        raise ExchangeError("the exported graph is invalid", got=cause(error)) from error
