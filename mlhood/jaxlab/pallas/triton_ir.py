"""The Triton IR that JAX lowers a Pallas kernel to: JAX writes it on any machine, and only a GPU's driver runs it."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterator
from typing import Any

import jax
from jaxlib.mlir import ir
from jaxlib.mlir.dialects import arith, math, scf  # noqa: F401 - loaded, they are known to the parser of MLIR
from jaxlib.triton import dialect

from mlhood.errors import XlaError

_OPERATION = re.compile(r"^\s*(?:%[\w:#, %]+ = )?([a-z]+\.[a-z_]+)", re.MULTILINE)


def triton_ir(function: Callable[..., Any], *arguments: Any) -> str:
    """Return the Triton IR of the first Pallas kernel in a function, as text of MLIR.

    In StableHLO, a kernel is a custom call whose configuration holds its IR as MLIR's bytecode.

    Args:
        function: A JAX function that calls a kernel with `interpret=False`.
        arguments: Arrays or `jax.ShapeDtypeStruct`s: only shapes and dtypes matter. No GPU is needed.

    Raises:
        XlaError: The function calls no kernel that is compiled by Triton.
    """
    lowered = jax.jit(function).trace(*arguments).lower(lowering_platforms=("cuda",))
    module: Any = lowered.compiler_ir("stablehlo")
    for operation in _operations(module.operation):
        if "mhlo.backend_config" in operation.attributes and "triton" in str(operation.attributes["call_target_name"]):
            bytecode = ir.StringAttr(ir.DictAttr(operation.attributes["mhlo.backend_config"])["ir"]).value_bytes
            context = ir.Context()
            dialect.register_dialect(context)
            return str(ir.Module.parse(bytecode, context))
    raise XlaError(
        "there is no Triton kernel in the function",
        expected="a call of pallas_call",
        got="StableHLO without the custom call __gpu$xla.gpu.triton",
        todo="pass interpret=False",
    )


def operations(text: str) -> Counter[str]:
    """Return how often each operation occurs in a text of MLIR, by its name with dialect, as in `tt.load`."""
    return Counter(_OPERATION.findall(text))


def excerpt(text: str, operation: str, lines: int = 12) -> str:
    """Return the lines of a text of MLIR from the first occurrence of an operation on.

    Raises:
        XlaError: The operation does not occur.
    """
    rows = text.splitlines()
    for number, row in enumerate(rows):
        if re.search(rf"(^|= |\s){re.escape(operation)}\b", row):
            return "\n".join(rows[number : number + lines])
    raise XlaError(f"no operation {operation}", expected=", ".join(operations(text)), got=operation)


def _operations(operation: Any) -> Iterator[Any]:
    for region in operation.regions:
        for block in region.blocks:
            for inner in block.operations:
                yield inner
                yield from _operations(inner)
