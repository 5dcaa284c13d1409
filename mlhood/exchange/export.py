"""Export from torch to ONNX: self-contained, deterministic, silent.

torch's graph is cleaned up before it is written: readable names, no metadata of this machine.
"""

from __future__ import annotations

import ast
import contextlib
import io
import itertools
import logging
import warnings
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnx_ir as ir
import torch
from onnx_ir.passes import common
from onnxscript import optimizer, rewriter
from onnxscript.rewriter.rules import common as rules
from torch import nn

from mlhood.errors import ExchangeError
from mlhood.files.atomic import check_output, write_atomic
from mlhood.models.training import mode

OPSET = 20
OLDEST_OPSET = 18
# Redundant nodes that torch exports: computed shapes, neutral operands, a bias of zeros.
_SIMPLIFICATIONS = [
    rules.materialize_reshape_shape_rule,
    rules.no_op_expand_rule,
    rules.mul_by_1_rule,
    rules.add_0_rule,
    rules.remove_optional_bias_from_conv_rule,
]

# Suffix for the exporter's constants, by the operator that reads them.
_CONSTANT_NAMES = {
    "Reshape": "shape",
    "ReduceMean": "axes",
    "Squeeze": "axes",
    "Unsqueeze": "axes",
    "Transpose": "axes",
}


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
    path = Path(path)
    check_output(path)
    inputs = _inputs(example, dynamic_batch)
    _check_names(inputs, input_names, output_names, opset)
    with mode(model, training=False), silence():
        program = _trace(model, inputs, tuple(input_names), tuple(output_names), dynamic_batch, keep_batchnorm, opset)
        graph = simplify(program.model) if keep_batchnorm else program.model
        proto = tidy(graph)
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
    except Exception as error:  # the model, torch.export and the conversion rules raise arbitrary exceptions
        raise ExchangeError(
            "torch cannot export this model",
            where=type(model).__name__,
            got=_cause(error),
            todo="check that the model runs on the example; in `forward`, do not hard-code the batch size "
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
            todo="pass, for example, torch.zeros(1, 1, 32, 32)",
        )
    if not dynamic_batch:
        return tensors
    # torch.export specializes axes of size 1, so a model that only works for one image would be accepted.
    return tuple(torch.cat([tensor, tensor]) if len(tensor) == 1 else tensor for tensor in tensors)


def _tensor(values: Any) -> torch.Tensor:
    try:
        return torch.tensor(np.asarray(values))
    except (TypeError, ValueError) as error:
        raise ExchangeError(
            "the example cannot be converted to a tensor",
            expected="a torch tensor, an array, or a tuple of them",
            got=type(values).__name__,
        ) from error


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
        raise ExchangeError("the exported graph is invalid", got=_cause(error)) from error


def _cause(error: BaseException) -> str:
    """Return the first line of the innermost exception, the one the author of the model can act on."""
    while error.__cause__ is not None:
        error = error.__cause__
    lines = [line.strip() for line in str(error).splitlines() if line.strip()]
    return f"{type(error).__name__}: {lines[0][:300]}" if lines else type(error).__name__


def simplify(model: ir.Model) -> ir.Model:
    """Simplify, in place, a graph that was exported without optimisation, but keep BatchNormalization.

    torch's own optimisation folds it into the convolution. These are its rules that a convolutional network
    needs: fold constants, materialize the shape of a Reshape, remove no-ops.
    """
    optimizer.inline(model)
    for _ in range(2):
        optimizer.fold_constants_ir(model, onnx_shape_inference=True)
        rewriter.rewrite(model, _SIMPLIFICATIONS)
    ir.passes.Sequential(
        common.LiftConstantsToInitializersPass(lift_all_constants=True, size_limit=0),
        common.RemoveUnusedNodesPass(),
        common.CommonSubexpressionEliminationPass(),
        common.RemoveUnusedOpsetsPass(),
    )(model)
    return model


def tidy(model: ir.Model) -> onnx.ModelProto:
    """Name nodes and values after the modules, and drop the exporter's metadata, which contain file paths."""
    _rename(model.graph)
    common.ClearMetadataAndDocStringPass()(model)
    model.metadata_props.clear()
    proto = ir.to_proto(model)
    for part in (proto, proto.graph):
        part.ClearField("metadata_props")
        part.ClearField("doc_string")
    weights = {tensor.name for tensor in proto.graph.initializer}
    for index in reversed(range(len(proto.graph.value_info))):
        if proto.graph.value_info[index].name in weights:  # an initializer has its own type
            del proto.graph.value_info[index]
    for value in (*proto.graph.input, *proto.graph.output, *proto.graph.value_info, *proto.graph.initializer):
        value.ClearField("metadata_props")
        value.ClearField("doc_string")
    return proto


def _rename(graph: ir.Graph) -> None:
    used = {value.name for value in (*graph.inputs, *graph.outputs, *graph.initializers.values()) if value.name}
    outputs = set(graph.outputs)
    for node in graph:
        name = _unique(_base_name(node), used)
        node.name = name
        for index, value in enumerate(node.outputs):
            if value not in outputs and value.name:
                value.name = name if index == 0 else _unique(f"{name}_{index}", used)
        for value in node.inputs:
            if value is not None and value.is_initializer() and str(value.name).startswith("val_"):
                value.name = _unique(f"{name}.{_CONSTANT_NAMES.get(node.op_type, 'constant')}", used)


def _unique(name: str, used: set[str]) -> str:
    """Return the name, with a number appended if it is in use, and add it to the names in use."""
    candidates = itertools.chain([name], (f"{name}_{i}" for i in itertools.count(1)))
    unique = next(candidate for candidate in candidates if candidate not in used)
    used.add(unique)
    return unique


def _base_name(node: ir.Node) -> str:
    """Return the module that owns the node's weight, else the module it was traced in, else its operator."""
    for value in node.inputs:
        if value is not None and value.is_initializer() and (value.name or "").endswith(".weight"):
            return str(value.name).removesuffix(".weight")
    scopes, classes = _metadata(node, "name_scopes"), _metadata(node, "class_hierarchy")
    module = scopes[-2] if len(scopes) >= 2 else ""
    operator = node.op_type.lower()
    if not module:
        return operator
    # A torch layer is one operator; a user-defined module contains many.
    is_layer = len(classes) >= 2 and classes[-2].startswith("torch.nn.modules.")
    return module if is_layer else f"{module}.{operator}"


def _metadata(node: ir.Node, key: str) -> list[str]:
    try:
        return ast.literal_eval(node.metadata_props.get(f"pkg.torch.onnx.{key}", "[]"))
    except (SyntaxError, ValueError):
        return []
