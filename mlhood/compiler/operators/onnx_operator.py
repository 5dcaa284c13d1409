"""Operators outside the networks of the course, which the onnx package implements: its type rules and its reference."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import count
from typing import Any

import numpy as np
import onnx
from onnx import defs, helper, numpy_helper
from onnx.helper import get_attribute_value
from onnx.reference import ReferenceEvaluator
from onnx.shape_inference import InferenceError, infer_shapes

from mlhood.compiler.hir.operator import Operator, require, require_unquantized
from mlhood.compiler.hir.types import Dim, TensorType
from mlhood.compiler.hir.values import Constant as ConstantValue
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.cast import Cast, element_of, number_of
from mlhood.compiler.operators.onnx_node import OnnxNode
from mlhood.compiler.operators.onnx_writer import OnnxWriter
from mlhood.compiler.operators.shape import Reshape
from mlhood.errors import CompilerError

# Inputs that are constants of at most one axis and this length, such as axes, become attributes.
_MAX_LIST = 16

# The first version of ONNX's operator set in which the reference implementation is right, where that is not the first.
_OLDEST = {"Hardmax": 13}

Constant = tuple[int, str, tuple[int, ...], tuple[Any, ...]]


@dataclass(frozen=True)
class OnnxOperator(Operator):
    """An operator of ONNX's standard, whose types ONNX infers and whose results its reference implementation computes.

    Inputs and outputs are those of the ONNX node. An axis whose length ONNX does not infer gets a new name.

    Attributes:
        op_type: The operator's name in ONNX.
        opset: Version of ONNX's operator set.
        options: The node's attributes: the name and the value of each.
        constants: Inputs known at compile time, on which types may depend: the position, the element type, the shape
            and the elements of each. The operator's inputs are the others.
        outputs: Number of outputs.
        axis: Prefix of the names of axes whose length ONNX does not infer.
    """

    op_type: str
    opset: int
    options: tuple[tuple[str, Any], ...] = ()
    constants: tuple[Constant, ...] = ()
    outputs: int = 1
    axis: str = "axis"

    onnx = (
        "BitShift",
        "BitwiseAnd",
        "BitwiseNot",
        "BitwiseOr",
        "BitwiseXor",
        "CausalConvWithState",
        "Col2Im",
        "Compress",
        "CumProd",
        "CumSum",
        "DeformConv",
        "Einsum",
        "EyeLike",
        "Hardmax",
        "LinearAttention",
        "LpPool",
        "NonMaxSuppression",
        "NonZero",
        "ReverseSequence",
        "STFT",
        "Shrink",
        "TensorScatter",
        "ThresholdedRelu",
        "Trilu",
        "Unique",
    )

    @property
    def label(self) -> str:
        return self.op_type

    def _model(self, types: Sequence[TensorType | None]) -> onnx.ModelProto:
        """Return a model of the node alone, with the inputs x0, x1, ... and the outputs y0, y1, ..."""
        constants = {
            i: numpy_helper.from_array(np.array(data, element).reshape(shape), f"x{i}")
            for i, element, shape, data in self.constants
        }
        free = (i for i in count() if i not in constants)
        given = {i: type for i, type in zip(free, types, strict=False) if type is not None}
        size = max((*given, *constants), default=-1) + 1
        names = [f"x{i}" if i in given or i in constants else "" for i in range(size)]
        outputs = [f"y{i}" for i in range(self.outputs)]
        try:
            declared = defs.get_schema(self.op_type, self.opset).attributes.items()
        except defs.SchemaError as error:
            raise CompilerError("ONNX does not have the operator", got=f"{self.op_type}, opset {self.opset}") from error
        # which ONNX's type inference does not always know
        defaults = {name: get_attribute_value(each.default_value) for name, each in declared if each.default_value.name}
        node = helper.make_node(self.op_type, names, outputs, **defaults | dict(self.options))
        infos = [
            helper.make_tensor_value_info(f"x{i}", number_of(type.element), type.shape) for i, type in given.items()
        ]
        results = [onnx.ValueInfoProto(name=name) for name in outputs]
        graph = helper.make_graph([node], self.op_type, infos, results, list(constants.values()))
        return helper.make_model(graph, opset_imports=[helper.make_opsetid("", self.opset)])

    def infer(self, *types: TensorType | None) -> tuple[TensorType, ...]:
        require_unquantized(*types)
        try:
            model = infer_shapes(self._model(types), check_type=True, strict_mode=True, data_prop=True)
        except (InferenceError, RuntimeError) as error:
            got = str(error).strip().splitlines()[-1]
            raise CompilerError("the inputs do not fit the operator", got=got) from error
        axes: dict[str, Dim] = {str(axis): axis for type in types if type is not None for axis in type.shape}
        names = (f"{self.axis}{i}" for i in count())

        def length(axis: onnx.TensorShapeProto.Dimension) -> Dim:
            return axis.dim_value if axis.HasField("dim_value") else axes.get(axis.dim_param) or next(names)

        results = []
        for i, output in enumerate(model.graph.output):
            type = output.type.tensor_type
            require(type.HasField("shape"), "the rank of a result is not known", got=f"output {i}")
            results.append(TensorType(element_of(type.elem_type), tuple(map(length, type.shape.dim))))
        return tuple(results)

    def evaluate(self, *arrays: np.ndarray | None) -> tuple[np.ndarray, ...]:
        given = tuple(array is not None for array in arrays)
        evaluators = self.__dict__.setdefault("_evaluators", {})
        if given not in evaluators:
            types = [None if array is None else TensorType(array.dtype.name, array.shape) for array in arrays]
            evaluators[given] = ReferenceEvaluator(self._model(types))
        feeds = dict(zip(evaluators[given].input_names, (x for x in arrays if x is not None), strict=True))
        try:
            with np.errstate(all="ignore"):
                results = evaluators[given].run(None, feeds)
        except Exception as error:  # of any class
            got = str(error).strip().split("\n")[0] or type(error).__name__
            raise CompilerError("ONNX's reference implementation failed", got=got) from error
        return tuple(map(np.asarray, results))

    def workspace(self, *types: TensorType | None) -> int:
        """The longest results of lengths that depend on data have an index of each element of an input."""
        sizes = [math.prod(map(int, type.shape)) * max(type.rank, 1) for type in types if type is not None]
        return max(sizes, default=0)

    def to_onnx(self, writer: OnnxWriter, inputs: list[str], name: str) -> str:
        types = [None if value is None else value.type for value in writer.node.inputs]
        try:
            replace(self, opset=writer.opset).infer(*types)
        except CompilerError as error:
            what, todo = "the opset does not have the operator in this form", f"export with opset {self.opset}"
            raise CompilerError(what, where=writer.node.where, got=writer.opset, todo=todo) from error
        graph = self._model(types).graph
        names = {tensor.name: writer.constant(numpy_helper.to_array(tensor)) for tensor in graph.initializer}
        names |= dict(zip((value.name for value in graph.input), filter(None, inputs), strict=True))
        outputs = [name, *map(writer.name, writer.node.outputs[1:])]
        operands = (names.get(key, "") for key in graph.node[0].input)
        return writer.emit_all(self.op_type, *operands, names=outputs, **dict(self.options))[0]

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Sequence[Value]:
        oldest = _OLDEST.get(source.op_type, 1)
        if source.opset < oldest:
            raise source.unsupported(f"{source.op_type} of opset {source.opset} is not supported", f"use {oldest}")
        outputs = max(i + 1 for i, used in enumerate(source.outputs) if used)
        return add_onnx_operator(source, source.inputs, source.attributes, outputs)


def add_onnx_operator(
    source: OnnxNode,
    inputs: Sequence[Value | None],
    options: Mapping[str, Any],
    outputs: int = 1,
    opset: int | None = None,
) -> Sequence[Value]:
    """Add the operator of an ONNX node; its results as constants, if its inputs are and decide on their lengths.

    Args:
        source: The node.
        inputs: The inputs, None for one left out.
        options: The attributes.
        outputs: Number of outputs.
        opset: Version of ONNX's operator set; by default the model's.
    """
    constants, others = [], []
    for i, value in enumerate(inputs):
        data = source.elements(value) if value is not None and i > 0 else None
        if data is None or data.ndim > 1 or data.size > _MAX_LIST:
            others.append(source.as_stored(value))
        else:
            constants.append((i, data.dtype.name, data.shape, tuple(data.ravel().tolist())))
    attributes = tuple(sorted(options.items()))
    axis = f"{source.name}.axis"[-100:]
    version = opset or source.opset
    if defs.has(source.op_type) and not defs.has(source.op_type, version, ""):
        version = defs.get_schema(source.op_type).since_version  # ONNX Runtime takes it in older opsets, too
    operator = OnnxOperator(source.op_type, version, attributes, tuple(constants), outputs, axis)
    arrays = [value.data if isinstance(value, ConstantValue) else None for value in others]
    try:
        types = operator.infer(*(None if value is None else value.type for value in others))
    except CompilerError:
        for i, value in enumerate(inputs):  # the types may depend on it
            if i > 0 and value is not None and value.type.rank <= 1 and value.type.dtype.kind == "i":
                source.refuse_input(i)
        raise
    is_open = any(isinstance(axis, str) for type in types for axis in type.shape)
    if not is_open or any(array is None and value is not None for array, value in zip(arrays, others, strict=True)):
        return source.add_all(operator, *others)
    results = operator.evaluate(*arrays)
    source.spend(sum(array.size for array in results))
    return tuple(map(source.constant, results))


OPERATORS = (OnnxOperator,)


def import_det(source: OnnxNode) -> Value:
    """Det; of float16 in float32."""
    x = source.input(0)
    narrow = x.type.element == "float16"
    (y,) = add_onnx_operator(source, [source.add(Cast("float32"), x) if narrow else x], {})
    return source.add(Cast("float16"), y) if narrow else y


def import_roi_align(source: OnnxNode) -> Sequence[Value]:
    """RoiAlign; before opset 16, regions were not shifted by half a pixel."""
    options = dict(source.attributes)
    if source.opset < 16:
        options["coordinate_transformation_mode"] = "output_half_pixel"
    return add_onnx_operator(source, source.inputs, options, opset=max(source.opset, 16))


def import_unique(source: OnnxNode) -> Sequence[Value]:
    """Unique; ONNX's reference is right for a list, for sorted elements, and with all outputs."""
    x, options = source.input(0), dict(source.attributes)
    if "axis" not in options:
        x, options["axis"] = source.add(Reshape((-1,)), x), 0
    if x.type.rank != 1 and not options.get("sorted", 1):
        raise source.unsupported("the slices of a tensor are not supported in order of appearance", "sort them")
    return add_onnx_operator(source, [x], options, 4)


def import_dft(source: OnnxNode) -> Sequence[Value]:
    """DFT, as in opset 20: the axis is an input."""
    options = dict(source.attributes)
    axis = source.optional(2) or source.constant(np.array(options.pop("axis", 1 if source.opset < 20 else -2)))
    return add_onnx_operator(source, [source.input(0), source.optional(1), axis], options, opset=20)


RULES = {
    "DFT": import_dft,
    "Det": import_det,
    "RoiAlign": import_roi_align,
    "Unique": import_unique,
}
