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

from mlhood.files.atomic import check_output, write_atomic

if TYPE_CHECKING:
    from torch import nn

OPSET = 20


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
        ExchangeError: The model cannot be traced.
        OutputError: The file cannot be written; no partial file is left.
    """
    from mlhood.exchange import torch_graph  # loads torch, which reading a file does not need
    from mlhood.models.training import mode

    path = Path(path)
    check_output(path)
    inputs = torch_graph.example_inputs(example, dynamic_batch)
    with mode(model, training=False), silence():
        names = tuple(input_names), tuple(output_names)
        program = torch_graph.trace(model, inputs, *names, dynamic_batch, keep_batchnorm, opset)
        graph = torch_graph.simplify(program.model) if keep_batchnorm else program.model
        proto = torch_graph.tidy(graph)
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
