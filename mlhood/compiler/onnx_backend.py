"""The compiler behind ONNX's backend interface (`onnx.backend.base`), which ONNX's test suite drives."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import onnx
from onnx import helper, numpy_helper
from onnx.backend.base import Backend, BackendRep, namedtupledict

from mlhood.compiler.backends.targets import DEFAULT, TARGETS, Runner, check_target
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.errors import CompilerError
from mlhood.exchange.load import load


class MlhoodRep(BackendRep):
    """A model, prepared for execution.

    It is compiled on its first run, because input values may determine shapes (Reshape's second input), and again
    whenever such a value or the shape of an input changes.

    Args:
        model: A valid model.
        target: A key of `TARGETS`.
    """

    def __init__(self, model: onnx.ModelProto, target: str) -> None:
        self._model = model
        self._target = target
        initializers = {tensor.name for tensor in model.graph.initializer}
        self._names = [value.name for value in model.graph.input if value.name not in initializers]
        self._static_inputs: list[str] = []  # inputs whose values must be known at compile time
        self._compiled: dict[Any, Runner] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: One array for each input of the model, in order; or a single array.
            kwargs: Not used.

        Returns:
            The outputs in order, as a named tuple.

        Raises:
            CompilerError: The compiler does not support the model, or the inputs are invalid.
        """
        values = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(values) != len(self._names):
            raise CompilerError("wrong number of inputs", expected=", ".join(self._names), got=len(values))
        if any(isinstance(value, (list, tuple)) or value is None for value in values):
            raise CompilerError("only tensors are supported as inputs", expected="arrays")
        arrays = dict(zip(self._names, map(np.asarray, values), strict=True))
        runner = self._runner(arrays)
        outputs = runner.run({name: array for name, array in arrays.items() if name not in self._static_inputs})
        return namedtupledict("Outputs", list(outputs))(*outputs.values())

    def _runner(self, arrays: dict[str, np.ndarray]) -> Runner:
        while True:
            constants = {name: arrays[name] for name in self._static_inputs}
            key = (
                tuple((name, array.shape) for name, array in arrays.items()),
                tuple((array.dtype.name, array.tobytes()) for array in constants.values()),
            )
            if key in self._compiled:
                return self._compiled[key]
            shapes = {name: array.shape for name, array in arrays.items()}
            try:
                graph = import_model(self._model, constants=constants, shapes=shapes)
            except ConstantNeeded as error:
                self._static_inputs.append(error.input_name)
                continue
            self._compiled[key] = TARGETS[self._target](graph)


class MlhoodBackend(Backend):
    """The backend; all methods are class methods, as ONNX takes the class itself."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> MlhoodRep:
        """Check a model and prepare it for execution.

        Args:
            model: The model.
            device: Only "CPU".
            kwargs: `backend`, a key of `TARGETS`, "interpreter" by default. Others are ignored.

        Raises:
            ExchangeError: The model is invalid.
            CompilerError: The device or target is unknown.
        """
        target = str(kwargs.get("backend", DEFAULT))
        if not cls.supports_device(device):
            raise CompilerError("unknown device", expected="CPU", got=device)
        check_target(target)
        return MlhoodRep(load(model, types=False), target)

    @classmethod
    def run_model(cls, model: onnx.ModelProto, inputs: Any, device: str = "CPU", **kwargs: Any) -> tuple[Any, ...]:
        """Run a model once; see `prepare` and `MlhoodRep.run`."""
        return cls.prepare(model, device, **kwargs).run(inputs)

    @classmethod
    def run_node(
        cls,
        node: onnx.NodeProto,
        inputs: Any,
        device: str = "CPU",
        outputs_info: Sequence[tuple[np.dtype, tuple[int, ...]]] | None = None,
        **kwargs: Any,
    ) -> tuple[Any, ...]:
        """Run one node once.

        Args:
            node: The node.
            inputs: An array for each of its inputs that is not omitted.
            device: Only "CPU".
            outputs_info: Element type and shape of each output; ignored, as they are inferred.
            kwargs: `opset_version`, the newest by default, and those of `prepare`.

        Raises:
            ExchangeError: The node is invalid.
            CompilerError: The compiler does not support the node.
        """
        opset = int(kwargs.pop("opset_version", onnx.defs.onnx_opset_version()))
        arrays = [np.asarray(value) for value in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
        names = list(dict.fromkeys(name for name in node.input if name))
        if len(names) != len(arrays):
            raise CompilerError("wrong number of inputs", expected=", ".join(names), got=len(arrays))
        # Inputs become constants, because their values may determine the output's shape.
        tensors = [numpy_helper.from_array(array, name) for name, array in zip(names, arrays, strict=True)]
        return cls.run_model(_model(node, tensors, opset), [], device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Return whether the device is supported."""
        return device == "CPU"


def _model(node: onnx.NodeProto, tensors: list[onnx.TensorProto], opset: int) -> onnx.ModelProto:
    """Return a valid model of one node, with output types inferred by ONNX."""
    outputs = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    opsets = [helper.make_opsetid("", opset)]
    draft = helper.make_model(helper.make_graph([node], "node", [], outputs, tensors), opset_imports=opsets)
    inferred = onnx.shape_inference.infer_shapes(draft, data_prop=True).graph.output
    graph = helper.make_graph([node], "node", [], inferred, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=onnx.IR_VERSION)
