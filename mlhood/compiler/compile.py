"""The pipeline as one function with named stops.

import -> "hir" -> passes -> "optimized" -> profile, quantise, passes -> "quantized"
       -> layouts and operators of the target -> "lowered" -> "lir" -> the target

Targets without kernels execute the graph without the last two. The program of the low-level IR
depends on the lengths of dynamic axes: the target makes one when it sees them, and on request it is returned.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, cast

import numpy as np
import onnx
from numpy.typing import ArrayLike

from mlhood.compiler.backends import timing
from mlhood.compiler.backends.targets import DEFAULT, LOWERINGS, Target, check_target, prepare
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.inputs import merge_inputs
from mlhood.compiler.hir.types import Dim
from mlhood.compiler.hir.verify import verify
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import optimize as optimize_program
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.verify import verify as verify_program
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.quantize import Profile, Recipe, profile, quantize
from mlhood.compiler.quantize.report import constant_bytes
from mlhood.compiler.quantize.samples import all_samples, split
from mlhood.errors import CompilerError, nearest
from mlhood.files.mapped import release_pages

if TYPE_CHECKING:
    import pandas as pd

Model = str | Path | bytes | onnx.ModelProto
Batch = Mapping[str, np.ndarray]
Calibration = Iterable[Batch] | Batch | Profile | None

STAGES = ("hir", "optimized", "quantized", "lowered", "lir")


@dataclass(frozen=True)
class Stage:
    """The result of one stage.

    Args:
        name: One of `STAGES`.
        graph: The graph after it, verified; after "lir", the one that was lowered.
        seconds: Execution time.
        program: The program after "lir", verified.
    """

    name: str
    graph: Graph
    seconds: float
    program: Program | None = None

    def __str__(self) -> str:
        size = constant_bytes(self.graph)
        length = f"{len(self.graph.nodes):5} nodes"
        if self.program is not None:
            length = f"{len(self.program.instructions):5} instructions"
        return f"{self.name:10} {length} {size:13,} bytes of constants {self.seconds:7.2f} s"


class Executable:
    """A compiled model.

    Args:
        stages: All stages; the graph of the last one is executed.
        target: The target to execute on.

    Attributes:
        runner: The graph, prepared for the target.
    """

    def __init__(self, stages: tuple[Stage, ...], target: Target) -> None:
        self.stages = stages
        self.target = target
        self.runner = prepare(self.graph, target)

    @property
    def graph(self) -> Graph:
        """The graph that is executed."""
        return self.stages[-1].graph

    def run(self, inputs: Batch | None = None, /, **by_name: Any) -> dict[str, np.ndarray]:
        """Run the model once.

        Args:
            inputs: An array for each input of the model, by name.
            by_name: The same as keywords, as in `run(image=x)`.

        Returns:
            The outputs by name.

        Raises:
            CompilerError: An input is missing, unknown or of another type.
        """
        return self.runner.run(merge_inputs(inputs, by_name))

    def profile(self, inputs: Batch | None = None, /, *, rounds: int = timing.ROUNDS, **by_name: Any) -> pd.DataFrame:
        """Return a row per node: operator, shape of its output, multiply-accumulates, and median time (s).

        Args:
            inputs: As for `run`; an input called "rounds" can be given only here.
            rounds: Number of runs.
            by_name: As for `run`.

        Raises:
            CompilerError: As for `run`, or `rounds` is invalid.
        """
        return timing.profile(self.runner, merge_inputs(inputs, by_name), rounds)

    def report(self, inputs: Batch | None = None, /, *, rounds: int = timing.ROUNDS, **by_name: Any) -> pd.DataFrame:
        """Return a row per node: time, kernel, layout, FLOP/s and their share of the peak, bytes.

        Args:
            inputs: As for `run`; an input called "rounds" can be given only here.
            rounds: Number of runs.
            by_name: As for `run`.

        Raises:
            CompilerError: As for `run`, or `rounds` is invalid.
        """
        return timing.report(self.runner, merge_inputs(inputs, by_name), rounds)


def compile(
    model: Model,
    target: Target = DEFAULT,
    quantization: Recipe | str | None = None,
    stop_after: str | None = None,
    *,
    calibration: Calibration = None,
    dims: Mapping[str, int] | None = None,
    constants: Mapping[str, ArrayLike] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> Executable | Graph | Program:
    """Compile an ONNX model.

    Args:
        model: Path, bytes or proto.
        target: The target to execute on, one of `TARGETS`; or a function for its convolutions, see
            `mlhood.compiler.backends.kernels.Kernels`.
        quantization: A recipe or the name of a schema to quantise the model with; None keeps it in float.
        stop_after: Return the graph after this stage: "hir" (as imported), "optimized", "quantized" or "lowered" (for
            the target, if it has kernels); or "lir", the program that it is lowered to.
        calibration: Typical inputs, for quantisation: an array for each input by name, an iterable of such
            batches, or a profile of the optimised graph. By default the course's digits or photographs, if the model
            takes them.
        dims: Lengths of dynamic axes by name, such as {"batch": 1}; the others remain open. Without them, the program
            of "lir" has no sizes in bytes and cannot be executed.
        constants: Values of inputs that must be known at compile time, such as {"axes": [1, 2]}; they are no longer
            inputs.
        shapes: Shapes of inputs for which the model declares none, or a wrong one, such as {"x": ("batch", 3, 8, 8)}.

    Returns:
        The executable; the graph or program, if `stop_after` is given.

    Raises:
        ExchangeError: The model cannot be read.
        CompilerError: It cannot be compiled, the target or stage is unknown, or calibration data are missing.
    """
    check_target(target)
    completed = tuple(stages(model, quantization, stop_after, calibration, dims, target, constants, shapes))
    last = completed[-1]
    return (last.program or last.graph) if stop_after else Executable(completed, target)


def stages(
    model: Model,
    quantization: Recipe | str | None = None,
    stop_after: str | None = None,
    calibration: Calibration = None,
    dims: Mapping[str, int] | None = None,
    target: Target = DEFAULT,
    constants: Mapping[str, ArrayLike] | None = None,
    shapes: Mapping[str, Sequence[Dim]] | None = None,
) -> Iterator[Stage]:
    """Yield the stages of the compilation, each as soon as it is completed; see `compile`."""
    recipe = Recipe(quantization) if isinstance(quantization, str) else quantization
    _check(recipe, stop_after, target)
    steps: dict[str, Callable[[Graph], Graph]] = {
        "hir": lambda _: import_model(model, constants=constants, dims=dims, shapes=shapes),
        "optimized": optimize,
    }
    if recipe is not None:
        steps["quantized"] = lambda graph: optimize(quantize(graph, _profile(graph, calibration), recipe))
    if not callable(target) and target in LOWERINGS:
        steps["lowered"] = LOWERINGS[target]
    graph = Graph()
    for name, step in steps.items():
        start = perf_counter()
        graph = step(graph)
        verify(graph)
        for constant in graph.constants.values():
            release_pages(constant.data)  # what comes next reads few of them
        yield Stage(name, graph, perf_counter() - start)
        if name == stop_after:
            return
    if stop_after == "lir":
        start = perf_counter()
        program = optimize_program(lower(graph))
        verify_program(program)
        yield Stage("lir", graph, perf_counter() - start, program)


def _profile(graph: Graph, calibration: Calibration) -> Profile:
    if isinstance(calibration, Profile):
        return calibration
    if calibration is None:
        return profile(graph, split(graph, all_samples(graph)))
    batches = [cast(Batch, calibration)] if isinstance(calibration, Mapping) else calibration
    if not isinstance(batches, Iterable):
        return profile(graph, batches)  # which says what it expects
    parts = (split(graph, batch) if isinstance(batch, Mapping) else [batch] for batch in batches)
    return profile(graph, chain.from_iterable(parts))  # which refuses what is no mapping


def _check(recipe: Recipe | None, stop_after: str | None, target: Target) -> None:
    if recipe is not None and not isinstance(recipe, Recipe):
        raise CompilerError("invalid quantisation", expected="a Recipe, or the name of a schema", got=repr(recipe))
    if stop_after not in (None, *STAGES):
        raise CompilerError(
            "unknown stage to stop after",
            expected=", ".join(STAGES),
            got=repr(stop_after),
            todo=nearest(stop_after, STAGES),
        )
    if stop_after == "quantized" and recipe is None:
        raise CompilerError(
            "stop_after='quantized' needs a quantisation",
            expected="a Recipe, or the name of a schema",
            got="none",
            todo="choose a schema: compile(model, quantization='symmetric'), or --quantize symmetric",
        )
    if stop_after == "lowered" and (callable(target) or target not in LOWERINGS):
        raise CompilerError(
            "stop_after='lowered' needs a target with kernels",
            expected=", ".join(LOWERINGS),
            got="a function" if callable(target) else target,
            todo="choose it: compile(model, target='cpu'), or --target cpu",
        )
