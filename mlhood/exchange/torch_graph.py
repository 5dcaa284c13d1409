"""From torch to an ONNX graph: traced, simplified, and with readable names.

This is the part of the export that needs torch, which `export` loads when it is called: who only reads ONNX files
does without.
"""

from __future__ import annotations

import ast
import itertools
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


def example_inputs(example: Any, dynamic_batch: bool) -> tuple[torch.Tensor, ...]:
    """Return an example as tensors; with a dynamic batch, none of them has just one element on the first axis."""
    parts = example if isinstance(example, (tuple, list)) else (example,)
    tensors = tuple(p.detach() if isinstance(p, torch.Tensor) else torch.tensor(np.asarray(p)) for p in parts)
    if not dynamic_batch:
        return tensors
    # torch.export specializes axes of size 1, so a model that only works for one image would be accepted.
    return tuple(torch.cat([tensor, tensor]) if len(tensor) == 1 else tensor for tensor in tensors)


def trace(
    model: nn.Module,
    inputs: tuple[torch.Tensor, ...],
    input_names: tuple[str, ...],
    output_names: tuple[str, ...],
    dynamic_batch: bool,
    keep_batchnorm: bool,
    opset: int,
) -> torch.onnx.ONNXProgram:
    """Return what torch exports; the arguments are those of `mlhood.exchange.export`, with tensors as example.

    Raises:
        ExchangeError: The model cannot be traced.
    """
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
