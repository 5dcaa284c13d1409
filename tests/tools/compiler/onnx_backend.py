"""The compiler behind ONNX's backend interface (`onnx.backend.base`), which ONNX's test suite drives."""

from __future__ import annotations

from typing import Any

import numpy as np
import onnx
from onnx.backend.base import Backend, BackendRep

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
        """Run the model on one array for each of its inputs, in order; return the outputs in order.

        Raises:
            CompilerError: The compiler does not support the model, or the inputs are invalid.
        """
        if len(inputs) != len(self._names):
            raise CompilerError("wrong number of inputs", expected=", ".join(self._names), got=len(inputs))
        if any(isinstance(value, (list, tuple)) or value is None for value in inputs):
            raise CompilerError("only tensors are supported as inputs", expected="arrays")
        arrays = dict(zip(self._names, map(np.asarray, inputs), strict=True))
        runner = self._runner(arrays)
        outputs = runner.run({name: array for name, array in arrays.items() if name not in self._static_inputs})
        return tuple(outputs.values())

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
    """The backend; ONNX takes the class itself."""

    @classmethod
    def prepare(cls, model: onnx.ModelProto, device: str = "CPU", **kwargs: Any) -> MlhoodRep:
        """Check a model and prepare it for execution on the target `backend`, the interpreter by default.

        Raises:
            ExchangeError: The model is invalid.
            CompilerError: The target is unknown.
        """
        target = str(kwargs.get("backend", DEFAULT))
        check_target(target)
        return MlhoodRep(load(model, types=False), target)
