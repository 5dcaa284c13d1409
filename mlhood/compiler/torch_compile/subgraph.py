"""A part of a captured graph, compiled when it is first called, and again for other shapes or changed weights."""

from __future__ import annotations

import logging
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule

from mlhood.compiler.backends.targets import Runner, prepare
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Placeholder
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.torch_compile.onnx_builder import NotTranslated
from mlhood.compiler.torch_compile.translation import Result, Translation, translate
from mlhood.errors import CompilerError

_LOGGER = logging.getLogger("mlhood.torch_compile")
_MAX_EXECUTABLES = 16  # for different shapes
_MAX_WEIGHT_CHANGES = 3
_SAMPLES = 32


class Subgraph:
    """A part of a captured graph that the compiler runs.

    Weights become constants. They are compared at every call, as torch lets anyone change them: storage and version of
    each, and some of its elements, for what `Tensor.data` hides from the version. After some changes, as in training,
    the part is left to torch, and so is one that cannot be compiled.

    Args:
        module: The part, a functional graph of ATen's operators.
        weights: Which of its arguments are weights.
        target: The target to run on.
        name: Its name.

    Attributes:
        graph: The graph that ran last, optimised; None before the first call.
        reason: Why torch runs the part; None if the compiler does.
    """

    def __init__(self, module: GraphModule, weights: Sequence[bool], target: str, name: str) -> None:
        self.module = module
        self.name = name
        self.graph: Graph | None = None
        self.reason: str | None = None
        self._target = target
        self._weights = tuple(i for i, is_weight in enumerate(weights) if is_weight)
        self._others = tuple(i for i, is_weight in enumerate(weights) if not is_weight)
        self._changes = 0
        self._held: _WeightState | None = None
        self._executables: dict[Any, Callable[[Sequence[Any]], tuple[Any, ...]]] = {}
        output = next(node for node in module.graph.nodes if node.op == "output")
        self._single = not isinstance(output.args[0], (tuple, list))

    def __call__(self, *arguments: Any) -> Any:
        """Return the part's results for tensors and integers."""
        if self.reason is None:
            self._check_weights([arguments[i] for i in self._weights])
        if self.reason is not None:
            return self.module(*arguments)
        key = tuple(_key(arguments[i]) for i in self._others)
        run = self._executables.get(key) or self._compile(key, arguments)
        if run is None:
            return self.module(*arguments)
        results = run(arguments)
        return results[0] if self._single else results

    def _check_weights(self, weights: list[torch.Tensor]) -> None:
        if self._held is not None and self._held.equals(weights):
            return
        if self._held is not None:
            self._changes += 1
            self._executables.clear()
        if self._changes > _MAX_WEIGHT_CHANGES:
            self._give_up("its weights change between calls, as in training")
            return
        self._held = _WeightState(weights)

    def _give_up(self, reason: str) -> None:
        self.reason, self._held = reason, None
        self._executables.clear()

    def _compile(self, key: Any, arguments: Sequence[Any]) -> Callable[[Sequence[Any]], tuple[Any, ...]] | None:
        try:
            translation = translate(self.module, arguments, self.name)
            names = [(i, translation.inputs[i]) for i in self._weights]
            constants = {name: as_array(arguments[i]) for i, name in names if name is not None}
            graph = optimize(import_model(translation.model, constants=constants))
            run = _Executable(graph, prepare(graph, self._target), translation, self._others)
        except (NotTranslated, CompilerError) as error:
            _LOGGER.warning("torch runs %s, which could not be compiled: %s", self.name, error)
            self._give_up(" ".join(str(error).split()))
            return None
        while len(self._executables) >= _MAX_EXECUTABLES:
            self._executables.pop(next(iter(self._executables)))
        self.graph = graph
        self._executables[key] = run
        return run


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as a contiguous array, which shares its memory where that is possible."""
    return tensor.detach().resolve_neg().contiguous().numpy()


def _key(argument: Any) -> Any:
    return argument.shape if isinstance(argument, torch.Tensor) else argument


class _WeightState:
    """What the weights were when they became constants; keeps their storage, so that no other tensor gets its place."""

    def __init__(self, weights: Sequence[torch.Tensor]) -> None:
        self._held = [weight.detach() for weight in weights]
        self._identities = [_identity(weight) for weight in weights]
        arrays = [as_array(weight).reshape(-1) for weight in weights]
        self._samples = [array[:: max(1, array.size // _SAMPLES)] for array in arrays]
        self._bytes = [sample.tobytes() for sample in self._samples]

    def equals(self, weights: Sequence[torch.Tensor]) -> bool:
        """Return whether the weights are still the same."""
        if any(map(_differs, weights, self._identities)):
            return False
        return all(sample.tobytes() == was for sample, was in zip(self._samples, self._bytes, strict=True))


def _identity(weight: torch.Tensor) -> tuple[int, int]:
    # a tensor made under inference_mode counts no versions
    return weight.data_ptr(), 0 if weight.is_inference() else weight._version


def _differs(weight: torch.Tensor, identity: tuple[int, int]) -> bool:
    return _identity(weight) != identity


class _Executable:
    """A compiled part for arguments of certain shapes.

    Args:
        graph: The graph.
        runner: It, prepared for execution.
        translation: How arguments and results correspond to the model's.
        others: The arguments that are not weights.
    """

    def __init__(self, graph: Graph, runner: Runner, translation: Translation, others: Sequence[int]) -> None:
        self._run = runner.run
        self._inputs = [(i, name) for i in others if (name := translation.inputs[i]) is not None]
        self._results = translation.results
        # the array of such an output is not this call's own
        self._borrowed = {name for name, value in graph.outputs.items() if isinstance(value, (Constant, Placeholder))}

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        arrays = {name: as_array(arguments[i]) for i, name in self._inputs}
        outputs = self._run(arrays)
        taken: list[np.ndarray] = list(arrays.values())
        return tuple(
            result.number if result.number is not None else self._tensor(result, outputs[result.name], taken)
            for result in self._results
        )

    def _tensor(self, result: Result, array: np.ndarray, taken: list[np.ndarray]) -> torch.Tensor:
        """Return an output as a tensor that shares memory with no other: torch may write to either."""
        array = np.asarray(array)
        shared = result.name in self._borrowed or any(np.may_share_memory(array, other) for other in taken)
        if shared or not (array.flags.c_contiguous and array.flags.writeable):
            array = array.copy(order="C")
        taken.append(array)
        tensor = torch.from_numpy(array)
        if tensor.stride() == result.strides or tensor.numel() == 0:
            return tensor
        return torch.empty_strided(tensor.shape, result.strides, dtype=tensor.dtype).copy_(tensor)
