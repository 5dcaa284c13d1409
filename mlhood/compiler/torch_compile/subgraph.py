"""A part of a captured graph, compiled when it is first called, and again for other shapes or changed weights."""

from __future__ import annotations

import ctypes
import logging
import os
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch.fx import GraphModule

from mlhood.compiler.backends.targets import Runner, prepare
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Placeholder
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.torch_compile.translation import Result, Translation, translate

_LOGGER = logging.getLogger("mlhood.torch_compile")
_MAX_EXECUTABLES = 16  # for different shapes
_MAX_WEIGHT_CHANGES = 3
_memcmp = ctypes.CDLL(None if os.name == "posix" else "msvcrt").memcmp
_memcmp.argtypes = (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t)


class Subgraph:
    """A part of a captured graph that the compiler runs.

    Weights become constants. Every byte of them is compared at every call, as torch lets anyone change them without
    a trace, through `Tensor.data` or NumPy. After some changes, as in training, the part is left to torch, and so is
    one that the compiler cannot compile or run.

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
        self._constants: dict[int, torch.Tensor] = {}  # what the weights were, by their positions
        self._executables: dict[Any, _Executable] = {}
        output = next(node for node in module.graph.nodes if node.op == "output")
        self._single = not isinstance(output.args[0], (tuple, list))

    def __call__(self, *arguments: Any) -> Any:
        """Return the part's results for tensors and integers."""
        if self.reason is None:
            self._check_weights(arguments)
        if self.reason is not None:
            return self.module(*arguments)
        try:
            others = [arguments[i] for i in self._others]
            key = tuple((x.shape, x.stride()) if isinstance(x, torch.Tensor) else x for x in others)
            run = self._executables.get(key) or self._compile(key, arguments)
            results = run(arguments)
        except Exception as error:
            results = self.module(*arguments)  # raises what torch raises where these arguments are wrong
            _LOGGER.warning("torch runs %s, which the compiler cannot: %s", self.name, error)
            self._give_up(" ".join(f"{type(error).__name__}: {error}".split()))
            return results
        return results[0] if self._single else results

    def _check_weights(self, arguments: Sequence[Any]) -> None:
        if all(_is_equal(arguments[i], constant) for i, constant in self._constants.items()):
            return
        self._changes += 1
        self._executables.clear()
        self._constants.clear()
        if self._changes > _MAX_WEIGHT_CHANGES:
            self._give_up("its weights change between calls, as in training")

    def _give_up(self, reason: str) -> None:
        self.reason = reason
        self._constants.clear()
        self._executables.clear()

    def _compile(self, key: Any, arguments: Sequence[Any]) -> _Executable:
        translation = translate(self.module, arguments, self.name)
        if not self._constants:
            self._constants = {i: arguments[i].detach().clone() for i in self._weights}
        constants = {str(translation.inputs[i]): as_array(each) for i, each in self._constants.items()}
        graph = optimize(import_model(translation.model, constants=constants))
        run = _Executable(graph, prepare(graph, self._target), translation, self._others)
        while len(self._executables) >= _MAX_EXECUTABLES:
            self._executables.pop(next(iter(self._executables)))
        self.graph = graph
        self._executables[key] = run
        return run


def as_array(tensor: torch.Tensor) -> np.ndarray:
    """Return a tensor as a contiguous array, which shares its memory where that is possible."""
    return tensor.detach().resolve_neg().contiguous().numpy()


def _is_equal(weight: torch.Tensor, constant: torch.Tensor) -> bool:
    """Return whether a weight has the same bytes as a clone of it that was made before."""
    if weight.stride() != constant.stride():
        weight = weight.clone()  # it has gaps, which clones do not have
    return _memcmp(weight.data_ptr(), constant.data_ptr(), constant.nbytes) == 0


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
        self._strides = translation.strides
        self._results = translation.results
        # the array of such an output is not this call's own
        self._borrowed = {name for name, value in graph.outputs.items() if isinstance(value, (Constant, Placeholder))}

    def __call__(self, arguments: Sequence[Any]) -> tuple[Any, ...]:
        arrays = {name: as_array(arguments[i]) for i, name in self._inputs}
        outputs = self._run(arrays)
        taken: list[np.ndarray] = list(arrays.values())
        tensors = {name: self._tensor(name, outputs[name], taken) for name in self._strides}
        return tuple(_result(each, tensors, arguments) for each in self._results)

    def _tensor(self, name: str, array: np.ndarray, taken: list[np.ndarray]) -> torch.Tensor:
        """Return an output as a tensor that shares memory with no other: torch may write to either."""
        array = np.asarray(array)
        shared = name in self._borrowed or any(np.may_share_memory(array, other) for other in taken)
        if shared or not (array.flags.c_contiguous and array.flags.writeable):
            array = array.copy(order="C")
        taken.append(array)
        tensor, strides = torch.from_numpy(array), self._strides[name]
        if tensor.stride() == strides:
            return tensor
        return torch.empty_strided(tensor.shape, strides, dtype=tensor.dtype).copy_(tensor)


def _result(result: Result, tensors: Mapping[str, torch.Tensor], arguments: Sequence[Any]) -> Any:
    if result.number is not None:
        return result.number
    base = tensors[result.base] if isinstance(result.base, str) else arguments[result.base]
    if result.view is None:
        return base
    shape, strides, offset = result.view
    return base.as_strided(shape, strides, base.storage_offset() + offset)
