"""Microbenchmarks in LLVM IR, compiled for this processor: multiply-adds in registers, and streams of memory."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from mlhood.errors import MeasureError

UNROLLED = 4

# a loop over `count` vectors, repeated; `fmuladd` is one fused instruction where the processor has it, else two, but
# always two operations
_LOOP = """
declare {vector} @llvm.fmuladd.{mangled}({vector}, {vector}, {vector})

define void @run(ptr %a, ptr %b, ptr %c, i64 %count, i64 %repeats) #0 {{
entry:
  %factor = load {vector}, ptr %c, align 4
{before}
  br label %again
again:
  %r = phi i64 [ 0, %entry ], [ %r.next, %again.end ]
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %next, %loop ]
{body}
  %next = add i64 %i, {step}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %again.end
again.end:
{after}
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %repeats
  br i1 %r.more, label %again, label %done
done:
  ret void
}}

attributes #0 = {{ nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }}
"""

_TRIAD = """\
  %i{i} = add i64 %i, {i}
  %b{i} = getelementptr {vector}, ptr %b, i64 %i{i}
  %c{i} = getelementptr {vector}, ptr %c, i64 %i{i}
  %a{i} = getelementptr {vector}, ptr %a, i64 %i{i}
  %u{i} = load {vector}, ptr %b{i}, align 4
  %v{i} = load {vector}, ptr %c{i}, align 4
  %w{i} = call {vector} @llvm.fmuladd.{mangled}({vector} %v{i}, {vector} %factor, {vector} %u{i})
  store {vector} %w{i}, ptr %a{i}, align 4"""

_READ = """\
  %i{i} = add i64 %i, {i}
  %b{i} = getelementptr {vector}, ptr %b, i64 %i{i}
  %u{i} = load {vector}, ptr %b{i}, align 4
  %t{i} = fadd {vector} %s{i}, %u{i}"""


class Native:
    """A function `run(a, b, c, count, repeats)` compiled for this processor; a call releases the GIL.

    Args:
        source: LLVM IR.

    Raises:
        MeasureError: LLVM cannot compile for this machine.
    """

    def __init__(self, source: str) -> None:
        try:
            self._engine = _compile(source)  # which owns the machine code
        except (ImportError, OSError, RuntimeError) as error:
            raise MeasureError("LLVM cannot compile for this machine", got=error, todo="run mlhood doctor") from error
        pointer, integer = ctypes.c_void_p, ctypes.c_int64
        kind = ctypes.CFUNCTYPE(None, pointer, pointer, pointer, integer, integer)
        self._call = kind(self._engine.get_function_address("run"))

    def __call__(self, *arguments: int) -> None:
        """Call it."""
        self._call(*arguments)


def multiply_add_source(lanes: int, accumulators: int) -> str:
    """Return the LLVM IR of `count` times 2 x lanes x accumulators floating-point operations, all in registers.

    a are the accumulators, vectors of `lanes` float32; c is a vector of factors, which are below 1 to keep them finite.
    Each accumulator depends only on itself, so all of them are in flight at once.
    """
    vector, ids = f"<{lanes} x float>", range(accumulators)
    # the accumulators are initialized separately, or a compiler might merge them
    loads = [
        f"  %p{i} = getelementptr {vector}, ptr %a, i64 {i}\n  %z{i} = load {vector}, ptr %p{i}, align 4" for i in ids
    ]
    phis = [f"  %x{i} = phi {vector} [ %z{i}, %again ], [ %y{i}, %loop ]" for i in ids]
    calls = [
        f"  %y{i} = call {vector} @llvm.fmuladd.v{lanes}f32({vector} %x{i}, {vector} %factor, {vector} %factor)"
        for i in ids
    ]
    stores = [f"  store {vector} %y{i}, ptr %p{i}, align 4" for i in ids]
    return _source(lanes, 1, loads, [*phis, *calls], stores)


def triad_source(lanes: int) -> str:
    """Return the LLVM IR of STREAM's triad (McCalpin), a = b + s c; the count is a multiple of `UNROLLED`."""
    return _source(lanes, UNROLLED, (), [_TRIAD.format(i=i, **_names(lanes)) for i in range(UNROLLED)], ())


def read_source(lanes: int) -> str:
    """Return the LLVM IR of reading b; its sum is stored at a, as nothing would be read for no result."""
    vector, ids = f"<{lanes} x float>", range(UNROLLED)
    phis = [f"  %s{i} = phi {vector} [ zeroinitializer, %again ], [ %t{i}, %loop ]" for i in ids]
    reads = [_READ.format(i=i, **_names(lanes)) for i in ids]
    sums = [f"  %x{i + 1} = fadd {vector} {f'%x{i}' if i else 'zeroinitializer'}, %t{i}" for i in ids]
    stored = f"  store volatile {vector} %x{UNROLLED}, ptr %a, align 4"
    return _source(lanes, UNROLLED, (), [*phis, *reads], [*sums, stored])


def _source(lanes: int, step: int, before: Sequence[str], body: Sequence[str], after: Sequence[str]) -> str:
    parts = {name: "\n".join(lines) for name, lines in (("before", before), ("body", body), ("after", after))}
    return _LOOP.format(step=step, **parts, **_names(lanes))


def _names(lanes: int) -> dict[str, str]:
    return {"vector": f"<{lanes} x float>", "mangled": f"v{lanes}f32"}


def _compile(source: str) -> Any:
    from llvmlite import binding

    binding.initialize_native_target()
    binding.initialize_native_asmprinter()
    host = binding.Target.from_default_triple().create_target_machine(
        cpu=binding.get_host_cpu_name(), features=binding.get_host_cpu_features().flatten(), opt=3
    )
    module = binding.parse_assembly(source)
    module.verify()
    engine = binding.create_mcjit_compiler(module, host)
    engine.finalize_object()
    return engine
