"""One model on everything that runs it: ONNX Runtime, the interpreter, cpu, XLA, and after an export."""

from __future__ import annotations

import copy

import numpy as np
import onnxruntime
from onnx import ModelProto, helper, numpy_helper, shape_inference

from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import LOWERINGS, TARGETS
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.hir import verify
from mlhood.compiler.onnx.exporter import to_onnx
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize


def session_of(model: ModelProto) -> onnxruntime.InferenceSession:
    options = onnxruntime.SessionOptions()
    options.log_severity_level = 4
    options.intra_op_num_threads = options.inter_op_num_threads = 1
    return onnxruntime.InferenceSession(model.SerializeToString(), options, providers=["CPUExecutionProvider"])


def with_open_axes(model: ModelProto) -> ModelProto:
    """Return a model with a name in place of each length above 1 of its inputs' axes, and no lengths of its outputs."""
    model = copy.deepcopy(model)
    for value in model.graph.input:
        for axis in value.type.tensor_type.shape.dim:
            if axis.dim_value > 1:
                axis.dim_param = f"n{axis.dim_value}"
    for value in model.graph.output:
        for axis in value.type.tensor_type.shape.dim:
            axis.Clear()
    return model


def agree(model: ModelProto, inputs, *, wanted=None, open_axes=True, exported=True, export_opset=21, **tolerance):
    """Compare all that runs a model with ONNX Runtime, or with the outputs that are given.

    Args:
        model: The model.
        inputs: Its inputs by name.
        wanted: The outputs in order, where ONNX Runtime does not have the operator.
        open_axes: Whether the model is also run with all axes of its inputs open.
        exported: Whether it is also exported as it is, and imported again, or run on ONNX Runtime if that has it.
        export_opset: Of the export.
        tolerance: `rtol` and `atol`.
    """
    runs_there = wanted is None
    wanted = session_of(model).run(None, inputs) if wanted is None else wanted
    for each in (model, with_open_axes(model)) if open_axes else (model,):
        graph = import_model(each)
        verify(graph)
        check_outputs(Interpreter(graph).run(inputs), wanted, tolerance)
        check_outputs(TARGETS["cpu"](optimize(graph)).run(inputs), wanted, tolerance)
        if not exported or each is not model:
            continue
        written = to_onnx(graph, opset=export_opset)
        if runs_there:
            names = [value.name for value in written.graph.output]
            results = dict(zip(names, session_of(written).run(None, inputs), strict=True))
        else:
            results = Interpreter(import_model(written)).run(inputs)
        check_outputs(results, wanted, tolerance)


def assert_agreement(model, inputs, *, wanted=None, xla=True, constants=None, export=True, **tolerance):
    """Compare the interpreter, the cpu, XLA and ONNX Runtime on the exported graph with ONNX Runtime on the model."""
    wanted = session_of(model).run(None, inputs) if wanted is None else wanted
    graph = import_model(model, constants=constants)
    verify(graph)
    given = {name: array for name, array in inputs.items() if name in graph.placeholders}
    runs = {"interpreter": Interpreter(graph).run(given), "cpu": Cpu(LOWERINGS["cpu"](graph)).run(given)}
    if xla:
        runs["xla"] = Xla(graph).run(given)
    if export:
        exported = session_of(to_onnx(graph)).run(None, given)
        runs["exported"] = dict(zip(graph.outputs, exported, strict=True))
    for runner, outputs in runs.items():
        check_outputs(outputs, wanted, tolerance, runner)
    return graph


def check_outputs(got, wanted, tolerance, runner=""):
    """Compare outputs by name with the wanted ones in order: types, shapes and, within a tolerance, elements."""
    for (name, array), reference in zip(got.items(), wanted, strict=True):
        assert array.dtype == reference.dtype, (runner, name)
        assert array.shape == reference.shape, (runner, name)
        limits = {"rtol": 1e-4, "atol": 1e-5, **tolerance}
        np.testing.assert_allclose(array, reference, **limits, err_msg=f"{runner} {name}")


def single(op_type, inputs, n_outputs=1, *, opset=20, constants=(), domain="", **attributes) -> ModelProto:
    """Return a model of one node.

    Args:
        op_type: Its operator.
        inputs: An array for each input by name, None for one left out.
        n_outputs: How many outputs y0, y1, ... it has.
        opset: Version of the operator set.
        constants: Names of inputs that are initialisers.
        domain: Of the operator.
        attributes: The node's.
    """
    names = ["" if array is None else name for name, array in inputs.items()]
    outputs = [f"y{i}" for i in range(n_outputs)]
    node = helper.make_node(op_type, names, outputs, domain=domain, **attributes)
    given = {name: array for name, array in inputs.items() if array is not None}
    infos = [
        helper.make_tensor_value_info(name, helper.np_dtype_to_tensor_dtype(array.dtype), array.shape)
        for name, array in given.items()
        if name not in constants
    ]
    tensors = [numpy_helper.from_array(given[name], name) for name in constants]
    empty = [helper.make_empty_tensor_value_info(name) for name in outputs]
    opsets = [helper.make_opsetid("", opset)]
    draft = helper.make_model(helper.make_graph([node], "test", infos, empty, tensors), opset_imports=opsets)
    types = shape_inference.infer_shapes(draft, data_prop=True).graph.output
    graph = helper.make_graph([node], "test", infos, types, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=8)


def node_of(op_type, inputs, attributes, opset, outputs=1):
    """Return a model of one node and its inputs by name, of which those in a last list are constants, None left out."""
    arrays = [*inputs[:-1], *inputs[-1]] if isinstance(inputs[-1], list) else inputs
    named = {f"x{i}": array for i, array in enumerate(arrays)}
    constants = [f"x{i}" for i in range(len(inputs) - 1, len(arrays))] if isinstance(inputs[-1], list) else []
    constants = [name for name in constants if named[name] is not None]
    model = single(op_type, named, outputs, opset=opset, constants=constants, **attributes)
    return model, {name: x for name, x in named.items() if x is not None and name not in constants}


def agree_single(op_type, inputs, n_outputs=1, *, opset=20, constants=(), attributes=None, **options):
    """Compare one node; see `single` and `agree`."""
    model = single(op_type, inputs, n_outputs, opset=opset, constants=constants, **(attributes or {}))
    given = {name: array for name, array in inputs.items() if array is not None and name not in constants}
    agree(model, given, **options)
