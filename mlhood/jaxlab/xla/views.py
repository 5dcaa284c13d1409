"""The representations of a function on its way through JAX and XLA: StableHLO, HLO and optimised HLO.

>>> import jax, jax.numpy as jnp
>>> from mlhood.jaxlab.xla.views import view
>>> seen = view(lambda x: jnp.maximum(x, 0) * 2, jax.ShapeDtypeStruct((4,), "float32"))
>>> seen.fusions()
{'broadcast_multiply_fusion': ('constant', 'broadcast', 'maximum', 'constant', 'broadcast', 'multiply')}
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import jax

from mlhood.errors import XlaError
from mlhood.jaxlab.xla.hlo import Computation, HloInstruction, Module, parse, ranked, strip_sources

Stage = Literal["hlo", "optimized"]
Options = Mapping[str, str | bool | int]
UNFUSED: Options = {"xla_disable_hlo_passes": "fusion"}
"""Without the pass each operation is a loop: XLA wraps it in its own fusion."""

_PRINTED_ELEMENTS = 16  # larger constants are elided: with its weights, a network's text would take a hundred megabytes


@dataclass(frozen=True)
class Cost:
    """XLA's cost analysis of a module.

    Args:
        flops: Additions and multiplications; of a convolution only those inside the input, not those on its padding
            (xla/service/hlo_cost_analysis.cc).
        bytes: Bytes read and written by all instructions, as if there were no cache.
    """

    flops: float
    bytes: float


class View:
    """All representations of one function for arguments of certain shapes, each computed on first use.

    Args:
        function: A pure JAX function.
        arguments: Arrays, trees of arrays, or `jax.ShapeDtypeStruct`s: only shapes and dtypes matter.
        options: XLA compiler options for `optimized` and everything derived from it, such as `UNFUSED`.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, options: Options | None = None) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.arguments = arguments
        self.options = dict(options or {})
        self._modules: dict[str, Module] = {}
        # unused arguments are kept, so that the numbers of parameters are those of the arguments
        self._traced = _translate_errors(lambda: jax.jit(function, keep_unused=True).trace(*arguments), self.name)
        self._lowered = _translate_errors(self._traced.lower, self.name)

    def __repr__(self) -> str:
        return f"View({self.name!r}, {len(self._lowered.in_avals[0])} arguments)"

    @property
    def data(self) -> tuple[int, ...]:
        """Numbers of the parameters that are single arrays: images, but not the leaves of a tree of weights.

        All parameters if every argument is a tree.
        """
        count, single = 0, []
        for argument in self.arguments:
            if jax.tree_util.all_leaves([argument]):
                single.append(count)
            count += len(jax.tree.leaves(argument))
        return tuple(single) or tuple(range(count))

    @cached_property
    def compiled(self) -> Any:
        """The compiled function: call it with arguments of these shapes.

        Raises:
            XlaError: An option is unknown to XLA.
        """
        return _translate_errors(lambda: self._lowered.compile(compiler_options=self.options), self.name)

    @property
    def stablehlo(self) -> str:
        """What JAX passes to a compiler, as MLIR's text; large constants are elided."""
        return self._lowered.compiler_ir("stablehlo").operation.get_asm(large_elements_limit=_PRINTED_ELEMENTS)

    @property
    def hlo(self) -> str:
        """The same as HLO, before XLA's optimisations; large constants are elided."""
        return self._lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=False)

    @property
    def optimized(self) -> str:
        """HLO as XLA executes it on this machine, with fusions, without the tables of source lines."""
        return strip_sources(self.compiled.as_text())

    def module(self, stage: Stage) -> Module:
        """Return a stage's computations and instructions.

        Raises:
            XlaError: The stage is unknown.
        """
        if stage not in ("hlo", "optimized"):
            raise XlaError("unknown stage", expected="hlo or optimized", got=stage)
        if stage not in self._modules:
            self._modules[stage] = parse(self.hlo if stage == "hlo" else self.optimized)
        return self._modules[stage]

    def operations(self, stage: Stage | Literal["stablehlo"], *, inside: bool = True) -> dict[str, int]:
        """Return how often each opcode is executed, the most frequent first; see `hlo.Module.operations`.

        Args:
            stage: "stablehlo", "hlo" or "optimized".
            inside: Whether to count the operations inside fusions; otherwise each fusion is one operation.
        """
        if stage == "stablehlo":
            return ranked(_stablehlo_opcodes(self._lowered.compiler_ir("stablehlo")))
        return self.module(stage).operations(inside=inside)

    def fusions(self) -> dict[str, tuple[str, ...]]:
        """Return the opcodes that XLA fused into one loop, by the fusion's name; a wrapped_... has a single one."""
        return self.module("optimized").fusions()

    def layouts(self, stage: Stage = "optimized") -> list[ConvolutionLayout]:
        """Return the memory layouts of each convolution's arrays."""
        return convolutions(self.module(stage))

    def cost(self, stage: Stage = "optimized") -> Cost:
        """Return XLA's cost analysis, after fusion or ("hlo") before."""
        analysis = (self.compiled if stage == "optimized" else self._lowered).cost_analysis() or {}
        return Cost(float(analysis.get("flops", 0.0)), float(analysis.get("bytes accessed", 0.0)))


def view(function: Callable[..., Any], *arguments: Any, options: Options | None = None) -> View:
    """Return all representations of a function for arguments like these; parameters as for `View`.

    Raises:
        XlaError: JAX cannot trace the function with these arguments.
    """
    return View(function, *arguments, options=options)


def _stablehlo_opcodes(module: Any) -> Iterator[str]:
    """Yield the opcodes of a StableHLO module without their prefix, those of a function once for each call."""
    functions = {function.attributes["sym_name"].value: function for function in module.body.operations}

    def walk(region: Any) -> Iterator[str]:
        for op in region.blocks[0].operations:
            opcode = op.operation.name.partition(".")[2]
            yield opcode
            if opcode == "call":
                yield from walk(functions[op.attributes["callee"].value].regions[0])
            elif opcode in ("while", "case", "if"):  # the regions of others, such as reduce, are on scalars
                for inner in op.operation.regions:
                    yield from walk(inner)

    return walk(functions["main"].regions[0])


def _translate_errors(call: Callable[[], Any], name: str) -> Any:
    """Call JAX, and raise its errors as XlaErrors; errors of the course's own code pass through."""
    try:
        return call()
    except (TypeError, ValueError, IndexError, jax.errors.JaxRuntimeError) as error:
        raise XlaError(
            "JAX or XLA rejected the function, its arguments or an option",
            where=name,
            got=f"{type(error).__name__}: {error}",
            todo="call the function without view, with arrays of these shapes; options are XLA's flags without the --",
        ) from error


# -- the memory layouts of convolutions

_LETTERS = {"b": "N", "f": "C", "o": "O", "i": "I", "0": "H", "1": "W", "2": "D"}


@dataclass(frozen=True)
class ConvolutionLayout:
    """The layouts of a convolution's arrays, the fastest-varying (contiguous) dimension last.

    Args:
        name: The convolution's name.
        x: Of the input: NCHW, NHWC and so on.
        w: Of the weights: OIHW, HWIO and so on.
        y: Of the output.
    """

    name: str
    x: str
    w: str
    y: str


def convolutions(module: Module) -> list[ConvolutionLayout]:
    """Return the layouts of all convolutions, in the order of execution."""
    return [
        _layout(computation, instruction)
        for computation, instruction in module.walk()
        if instruction.opcode == "convolution" and instruction.attribute("dim_labels")
    ]


def _layout(computation: Computation, convolution: HloInstruction) -> ConvolutionLayout:
    labels = (convolution.attribute("dim_labels") or "").replace("->", "_").split("_")
    operands = [computation.instructions[name].arrays[0] for name in convolution.operands[:2]]
    orders = [
        "".join(_LETTERS.get(label[dim], "?") for dim in reversed(array.layout))
        for label, array in zip(labels, [*operands, convolution.arrays[0]], strict=True)
    ]
    return ConvolutionLayout(convolution.name, *orders)
