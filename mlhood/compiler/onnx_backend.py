"""The compiler as a backend for ONNX, by the interface that ONNX's own test suite drives (`onnx.backend.base`)."""

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
    """A model that is ready to run.

    It is compiled when it first runs, as inputs may decide shapes (Reshape's second), and again whenever such an
    input, or the shape of any, is another.

    Args:
        model: A valid model.
        target: A key of `TARGETS`.
    """

    def __init__(self, model: onnx.ModelProto, target: str) -> None:
        self._model = model
        self._target = target
        initialised = {tensor.name for tensor in model.graph.initializer}
        self._names = [value.name for value in model.graph.input if value.name not in initialised]
        self._needed: list[str] = []
        self._compiled: dict[Any, Runner] = {}

    def run(self, inputs: Any, **kwargs: Any) -> tuple[Any, ...]:
        """Run the model.

        Args:
            inputs: One array for each input of the model, in order; a single one may stand alone.
            kwargs: Not used.

        Returns:
            The outputs in order; they can also be asked for by name.

        Raises:
            CompilerError: The compiler does not support the model, or these are not its inputs.
        """
        given = inputs if isinstance(inputs, (list, tuple)) else [inputs]
        if len(given) != len(self._names):
            raise CompilerError("wrong number of inputs", expected=", ".join(self._names), got=len(given))
        if any(isinstance(one, (list, tuple)) or one is None for one in given):
            raise CompilerError("only tensors are supported as inputs", expected="arrays")
        arrays = dict(zip(self._names, map(np.asarray, given), strict=True))
        runner = self._runner(arrays)
        outputs = runner.run({name: array for name, array in arrays.items() if name not in self._needed})
        named = namedtupledict("Outputs", list(outputs))
        return named(*outputs.values())

    def _runner(self, arrays: dict[str, np.ndarray]) -> Runner:
        while True:
            constants = {name: arrays[name] for name in self._needed}
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
                self._needed.append(error.input_name)
                continue
            self._compiled[key] = TARGETS[self._target](graph)


class MlhoodBackend(Backend):
    """The backend; all methods are class methods, so the class itself is what ONNX takes."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> MlhoodRep:
        """Check a model and make it ready to run.

        Args:
            model: The model.
            device: Only "CPU".
            kwargs: `backend`, a key of `TARGETS`; "interpreter" if left out. Others are not used.

        Raises:
            ExchangeError: The model is not valid.
            CompilerError: There is no such device or target.
        """
        target = str(kwargs.get("backend", DEFAULT))
        if not cls.supports_device(device):
            raise CompilerError("there is no such device", expected="CPU", got=device)
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
            inputs: An array for each of its inputs that is not left out.
            device: Only "CPU".
            outputs_info: Element type and shape of each output; not needed, as they follow from the inputs.
            kwargs: `opset_version`, the newest if left out, and those of `prepare`.

        Raises:
            ExchangeError: The node is not valid.
            CompilerError: The compiler does not support the node.
        """
        opset = int(kwargs.pop("opset_version", onnx.defs.onnx_opset_version()))
        given = [np.asarray(one) for one in (inputs if isinstance(inputs, (list, tuple)) else [inputs])]
        names = list(dict.fromkeys(name for name in node.input if name))
        if len(names) != len(given):
            raise CompilerError("wrong number of inputs", expected=", ".join(names), got=len(given))
        # As constants, so that inputs that decide the output's shape are known.
        tensors = [numpy_helper.from_array(array, name) for name, array in zip(names, given, strict=True)]
        return cls.run_model(_model(node, tensors, opset), [], device, **kwargs)

    @classmethod
    def supports_device(cls, device: str) -> bool:
        """Tell whether the device is the one there is."""
        return device == "CPU"


def _model(node: onnx.NodeProto, tensors: list[onnx.TensorProto], opset: int) -> onnx.ModelProto:
    """Return a valid model of one node: its outputs have the types that ONNX infers."""
    made = [helper.make_empty_tensor_value_info(name) for name in node.output if name]
    opsets = [helper.make_opsetid("", opset)]
    draft = helper.make_model(helper.make_graph([node], "node", [], made, tensors), opset_imports=opsets)
    inferred = onnx.shape_inference.infer_shapes(draft, data_prop=True).graph.output
    graph = helper.make_graph([node], "node", [], inferred, tensors)
    return helper.make_model(graph, opset_imports=opsets, ir_version=onnx.IR_VERSION)
