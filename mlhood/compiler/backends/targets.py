"""The table of targets on which a graph can run."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Protocol

import numpy as np

from mlhood.compiler.backends.interpreter import Interpreter, Observer
from mlhood.compiler.backends.split import Split, has_data_dependent_lengths
from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError, nearest

Conv2d = Callable[..., np.ndarray]


class Runner(Protocol):
    """A graph, prepared for execution; see `Interpreter.run`."""

    def run(self, inputs: Mapping[str, Any], observe: Observer | None = None) -> dict[str, np.ndarray]:
        """Return the outputs by name."""
        ...


def _kernels(graph: Graph, conv2d: str | Conv2d) -> Runner:
    from mlhood.compiler.backends.kernels import Kernels  # loads LLVM, which the interpreter does not need

    return Kernels(graph, conv2d)


def _cpu(graph: Graph) -> Runner:
    from mlhood.compiler.backends.cpu.runner import Cpu

    return Split(graph, Cpu) if has_data_dependent_lengths(graph) else Cpu(graph)


def _lower_for_cpu(graph: Graph) -> Graph:
    from mlhood.compiler.backends.cpu.lowering import lower_for_cpu

    return lower_for_cpu(graph)


def _xla(graph: Graph) -> Runner:
    from mlhood.compiler.backends.xla import Xla  # loads JAX

    return Xla(graph)


def _nmp(graph: Graph) -> Runner:
    from mlhood.compiler.backends.nmp.runner import Heterogeneous

    return Heterogeneous(graph)


DEFAULT = "interpreter"
TARGETS: dict[str, Callable[[Graph], Runner]] = {
    "interpreter": Interpreter,
    "naive": lambda graph: _kernels(graph, "naive"),
    "im2col_gemm": lambda graph: _kernels(graph, "im2col_gemm"),
    "im2col_blas": lambda graph: _kernels(graph, "im2col_blas"),
    "direct": lambda graph: _kernels(graph, "direct"),
    "cpu": _cpu,
    "xla": _xla,
    "nmp": _nmp,
}

# The stage "lowered" of the targets that have one: the graph with the layouts and operators of their kernels.
LOWERINGS: dict[str, Callable[[Graph], Graph]] = {"cpu": _lower_for_cpu}
Target = str | Conv2d


def prepare(graph: Graph, target: Target) -> Runner:
    """Prepare a graph for execution.

    Args:
        graph: A valid graph.
        target: A key of `TARGETS`, or a function for convolutions; see `mlhood.compiler.backends.kernels.Kernels`.

    Raises:
        CompilerError: The target cannot run the graph.
    """
    return _kernels(graph, target) if callable(target) else TARGETS[target](graph)


def check_target(target: Target) -> None:
    """Raise CompilerError if a target is unknown."""
    if not callable(target) and target not in TARGETS:
        todo = "choose one of these; C or a page is written by mlhood compile --target c or --target wasm, --out FOLDER"
        raise CompilerError(
            "unknown target",
            expected=", ".join(TARGETS),
            got=repr(target),
            todo=nearest(target, [*TARGETS, "c", "wasm"]) or todo,
        )
