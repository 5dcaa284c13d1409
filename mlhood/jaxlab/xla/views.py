"""What becomes of a function on its way through JAX and XLA: jaxpr, StableHLO, HLO, optimised HLO, LLVM IR.

>>> import jax, jax.numpy as jnp
>>> from mlhood.jaxlab.xla.views import view
>>> seen = view(lambda x: jnp.maximum(x, 0) * 2, jax.ShapeDtypeStruct((4,), "float32"))
>>> seen.fusions()
{'broadcast_multiply_fusion': ('constant', 'broadcast', 'maximum', 'constant', 'broadcast', 'multiply')}
"""

from __future__ import annotations

import re
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Literal

import jax

from mlhood.errors import XlaError
from mlhood.jaxlab.xla import layout, stablehlo
from mlhood.jaxlab.xla.hlo import Module, parse, without_sources

Stage = Literal["stablehlo", "hlo", "optimized"]
Options = Mapping[str, str | bool | int]

# The CPU's compiler gives convolutions to a library, unless it cannot bring them into the order that the library
# takes (xla/service/cpu/conv_canonicalization.cc); then it makes loops of them itself.
OWN_CONVOLUTION: Options = {"xla_disable_hlo_passes": "convolution-canonicalization"}
# What stays without it is an operation a loop: XLA wraps each in a fusion of its own.
UNFUSED: Options = {"xla_disable_hlo_passes": "fusion"}

_WRITTEN_OUT = 16  # numbers up to which a constant's are in the text: weights in it would make it a hundred megabytes


@dataclass(frozen=True)
class Cost:
    """XLA's own count of a module's work.

    Args:
        flops: A multiplication or an addition of two numbers each; a convolution's only where the window meets the
            input, its padding not (xla/service/hlo_cost_analysis.cc).
        bytes: What all instructions read and write, each as if there were no cache.
    """

    flops: float
    bytes: float


@dataclass(frozen=True)
class Memory:
    """Bytes that a compiled function needs.

    Args:
        arguments: Its arguments.
        results: Its results.
        temporary: What lies between them, reused as far as lifetimes allow.
        shared: Of the results, what lies where an argument was.
    """

    arguments: int
    results: int
    temporary: int
    shared: int


class View:
    """All forms of one function for arguments of certain shapes. Each is made when it is first asked for.

    Args:
        function: A pure function of JAX.
        arguments: Arrays, trees of arrays, or `jax.ShapeDtypeStruct`s: only shapes and types matter.
        options: Options of XLA's compiler for `optimized` and what follows from it, such as `UNFUSED`.
    """

    def __init__(self, function: Callable[..., Any], *arguments: Any, options: Options | None = None) -> None:
        self.name = getattr(function, "__name__", type(function).__name__)
        self.arguments = arguments
        self.options = dict(options or {})
        # an argument that is not read keeps its number
        traced = _asked(lambda: jax.jit(function, keep_unused=True).trace(*arguments), self.name)
        self._traced = traced
        self._lowered = _asked(traced.lower, self.name)

    def __repr__(self) -> str:
        return f"View({self.name!r}, {len(self._lowered.in_avals[0])} arguments)"

    @property
    def data(self) -> tuple[int, ...]:
        """Numbers of the parameters that are arguments by themselves: images, but not the leaves of a tree of weights.

        All of them where the function takes trees only.
        """
        number, alone = 0, []
        for argument in self.arguments:
            if jax.tree_util.all_leaves([argument]):
                alone.append(number)
            number += len(jax.tree.leaves(argument))
        return tuple(alone) or tuple(range(number))

    @cached_property
    def compiled(self) -> Any:
        """The compiled function: call it with arguments of these shapes.

        Raises:
            XlaError: XLA knows no such option.
        """
        return self._compile(self.options)

    @property
    def jaxpr(self) -> str:
        """The jaxpr: JAX's own trace of the function."""
        return str(self._traced.jaxpr)

    @property
    def stablehlo(self) -> str:
        """What JAX hands to a compiler, as MLIR's text; constants of many numbers are left out."""
        return self._lowered.compiler_ir("stablehlo").operation.get_asm(large_elements_limit=_WRITTEN_OUT)

    @property
    def hlo(self) -> str:
        """The same in XLA's own form, before it has done anything; constants of many numbers are left out."""
        return self._lowered.compiler_ir("hlo").as_hlo_text(print_large_constants=False)

    @property
    def optimized(self) -> str:
        """HLO as XLA runs it on this machine, with fusions, without the tables of source lines."""
        return without_sources(self.compiled.as_text())

    def module(self, stage: Stage) -> Module:
        """Return a stage's computations and instructions.

        Raises:
            XlaError: There is no such stage.
        """
        if stage not in self._modules:
            self._modules[stage] = self._read(stage)
        return self._modules[stage]

    def operations(self, stage: Stage, *, inside: bool = True) -> dict[str, int]:
        """Return how often each opcode runs, the most frequent first; see `hlo.Module.operations`.

        Args:
            stage: "stablehlo", "hlo" or "optimized".
            inside: Whether to count what is in fusions; without, each fusion is one operation.
        """
        return self.module(stage).operations(inside=inside)

    def fusions(self) -> dict[str, tuple[str, ...]]:
        """Return what XLA made one loop of: opcodes by the fusion's name. A wrapped_... holds but one operation."""
        return self.module("optimized").fusions()

    def layouts(self, stage: Stage = "optimized") -> list[layout.Layout]:
        """Return in which order the dimensions of each convolution's arrays lie in memory."""
        return layout.convolutions(self.module(stage))

    def moves(self, stage: Stage = "optimized") -> list[layout.Move]:
        """Return where data are brought into another order: transposes and copies, inside fusions too."""
        return layout.moves(self.module(stage))

    def cost(self, stage: Stage = "optimized") -> Cost:
        """Return XLA's count of the work, after fusion or ("hlo") before."""
        found = (self.compiled if stage == "optimized" else self._lowered).cost_analysis() or {}
        return Cost(float(found.get("flops", 0.0)), float(found.get("bytes accessed", 0.0)))

    def memory(self) -> Memory:
        """Return what the compiled function needs."""
        found = self.compiled.memory_analysis()
        return Memory(
            arguments=found.argument_size_in_bytes,
            results=found.output_size_in_bytes,
            temporary=found.temp_size_in_bytes,
            shared=found.alias_size_in_bytes,
        )

    def llvm_ir(self, *, optimized: bool = False) -> dict[str, str]:
        """Return the LLVM IR that XLA makes, by the name of the fusion or instruction it is for.

        What XLA gives to a library has none, which are the convolutions of most CPUs: with the option
        `OWN_CONVOLUTION` XLA writes them itself.

        Args:
            optimized: Whether to return it after LLVM's passes, with vectors and unrolled loops.

        Raises:
            XlaError: XLA wrote none.
        """
        kind = "with" if optimized else "no"
        with tempfile.TemporaryDirectory() as folder:
            self._compile({**self.options, "xla_dump_to": folder})
            found = {_kernel(path): path.read_text() for path in sorted(Path(folder).glob(f"*.ir-{kind}-opt.ll"))}
        if not found:
            raise XlaError(
                "XLA wrote no LLVM IR",
                where=self.name,
                expected="at least one operation that XLA compiles itself, on a CPU",
                got=f"{jax.default_backend()}; {', '.join(self.operations('optimized', inside=False))}",
                todo="view(function, ..., options=OWN_CONVOLUTION), and leave JAX's compilation cache off",
            )
        return found

    @cached_property
    def _modules(self) -> dict[str, Module]:
        return {}

    def _read(self, stage: str) -> Module:
        if stage == "stablehlo":
            return stablehlo.read(self._lowered.compiler_ir("stablehlo"), self.name)
        if stage not in ("hlo", "optimized"):
            raise XlaError("there is no such stage", expected="stablehlo, hlo or optimized", got=stage)
        return parse(self.hlo if stage == "hlo" else self.optimized)

    def _compile(self, options: Options) -> Any:
        return _asked(lambda: self._lowered.compile(compiler_options=dict(options)), self.name)


def view(function: Callable[..., Any], *arguments: Any, options: Options | None = None) -> View:
    """Return all forms of a function for arguments like these; arguments as `View`.

    Raises:
        XlaError: JAX cannot trace the function with these arguments.
    """
    return View(function, *arguments, options=options)


def _asked(step: Callable[[], Any], name: str) -> Any:
    """Do a step of JAX's; what it refuses is an error of ours, those of the course's own code stay what they are."""
    try:
        return step()
    except (TypeError, ValueError, IndexError, jax.errors.JaxRuntimeError) as error:
        raise XlaError(
            "JAX or XLA refuses this",
            where=name,
            got=f"{type(error).__name__}: {error}",
            todo="try the function without view, with arrays of these shapes; options are XLA's flags without the --",
        ) from error


def _kernel(path: Path) -> str:
    """Return what a file's IR is for: "module_0000.jit_f.__compute_module_NAME.ir-no-opt.ll"; else all that it says."""
    name = path.name.rsplit(".ir-", 1)[0]
    kernel = re.fullmatch(r"module_\d+\.[^.]+\.(?:__compute_module_)?(.+?)(?:_elemental)?(?:_kernel_module)?", name)
    return kernel[1] if kernel else name
