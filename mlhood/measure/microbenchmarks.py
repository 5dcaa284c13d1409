"""Microbenchmarks in LLVM IR, compiled for this processor: multiply-adds in registers, and streams of memory."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

from mlhood.errors import MeasureError

UNROLLED = 4

# `fmuladd` is one fused instruction where the processor has it, else two, but always two operations. Each accumulator
# depends only on itself, so all of them are in flight at once; |factor| < 1 keeps them finite.
_MULTIPLY_ADD = """
declare {vector} @llvm.fmuladd.{mangled}({vector}, {vector}, {vector})

define void @multiply_add(ptr %address, i64 %count) #0 {{
entry:
  %factor = load {vector}, ptr %address, align 4
{loads}
  br label %loop
loop:
  %i = phi i64 [ 0, %entry ], [ %next, %loop ]
{accumulators}
  %next = add i64 %i, 1
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %done
done:
{stores}
  ret void
}}

attributes #0 = {{ nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }}
"""

# a loop over whole arrays, repeated `repeats` times
_STREAM = """
declare {vector} @llvm.fmuladd.{mangled}({vector}, {vector}, {vector})

define void @{name}(ptr %a, ptr %b, ptr %c, i64 %count, i64 %repeats) #0 {{
entry:
  %factor = load {vector}, ptr %c, align 4
  br label %again
again:
  %r = phi i64 [ 0, %entry ], [ %r.next, %again.end ]
  br label %loop
loop:
  %i = phi i64 [ 0, %again ], [ %next, %loop ]
{body}
  %next = add i64 %i, {unrolled}
  %more = icmp slt i64 %next, %count
  br i1 %more, label %loop, label %again.end
again.end:
{end}
  %r.next = add i64 %r, 1
  %r.more = icmp slt i64 %r.next, %repeats
  br i1 %r.more, label %again, label %done
done:
  ret void
}}

attributes #0 = {{ nounwind "prefer-vector-width"="512" "min-legal-vector-width"="512" }}
"""


class Native:
    """A function compiled for this processor, which owns its machine code; a call releases the GIL.

    Args:
        source: LLVM IR.
        name: Name of the function in it, which returns nothing.
        arguments: ctypes of its arguments.

    Raises:
        MeasureError: LLVM cannot compile for this machine.
    """

    def __init__(self, source: str, name: str, *arguments: Any) -> None:
        try:
            self._engine = _compile(source)
        except (ImportError, OSError, RuntimeError) as error:
            raise MeasureError("LLVM cannot compile for this machine", got=error, todo="run mlhood doctor") from error
        address = self._engine.get_function_address(name)
        self.call: Callable[..., None] = ctypes.CFUNCTYPE(None, *arguments)(address)

    def __call__(self, *arguments: int) -> None:
        """Call it."""
        self.call(*arguments)


def multiply_add(lanes: int, accumulators: int) -> Native:
    """Return f(address, count): `count` times 2 x lanes x accumulators floating-point operations, all in registers.

    Args:
        lanes: float32 in a vector.
        accumulators: Number of accumulators. The address is that of a vector of factors < 1, followed by these vectors.
    """
    return Native(multiply_add_source(lanes, accumulators), "multiply_add", ctypes.c_void_p, ctypes.c_int64)


def multiply_add_source(lanes: int, accumulators: int) -> str:
    """Return the LLVM IR of `multiply_add`."""
    vector, mangled = f"<{lanes} x float>", f"v{lanes}f32"
    # the accumulators are initialized separately, or a compiler might merge them
    loads = [
        f"  %p{i} = getelementptr {vector}, ptr %address, i64 {i + 1}\n  %z{i} = load {vector}, ptr %p{i}, align 4"
        for i in range(accumulators)
    ]
    phis = [f"  %x{i} = phi {vector} [ %z{i}, %entry ], [ %y{i}, %loop ]" for i in range(accumulators)]
    calls = [
        f"  %y{i} = call {vector} @llvm.fmuladd.{mangled}({vector} %x{i}, {vector} %factor, {vector} %factor)"
        for i in range(accumulators)
    ]
    stores = [f"  store {vector} %y{i}, ptr %p{i}, align 4" for i in range(accumulators)]
    parts = {"loads": "\n".join(loads), "accumulators": "\n".join(phis + calls), "stores": "\n".join(stores)}
    return _MULTIPLY_ADD.format(vector=vector, mangled=mangled, **parts)


def triad(lanes: int) -> Native:
    """Return f(a, b, c, count, repeats): STREAM's triad (McCalpin), a = b + s c over `count` vectors.

    The count is a multiple of `UNROLLED`.
    """
    return _stream("triad", triad_source(lanes))


def read(lanes: int) -> Native:
    """Return f(a, b, c, count, repeats), which only reads `count` vectors of b, a multiple of `UNROLLED`."""
    return _stream("read", read_source(lanes))


def _stream(name: str, source: str) -> Native:
    pointer, integer = ctypes.c_void_p, ctypes.c_int64
    return Native(source, name, pointer, pointer, pointer, integer, integer)


def triad_source(lanes: int) -> str:
    """Return the LLVM IR of `triad`."""
    return _stream_source("triad", lanes, _TRIAD)


def read_source(lanes: int) -> str:
    """Return the LLVM IR of `read`: the sum is stored at a, as nothing would be read for no result."""
    vector, ids = f"<{lanes} x float>", range(UNROLLED)
    phis = [f"  %s{i} = phi {vector} [ zeroinitializer, %again ], [ %t{i}, %loop ]" for i in ids]
    sums = [f"  %x{i + 1} = fadd {vector} {f'%x{i}' if i else 'zeroinitializer'}, %t{i}" for i in ids]
    return _stream_source(
        "read", lanes, _READ, phis, [*sums, f"  store volatile {vector} %x{UNROLLED}, ptr %a, align 4"]
    )


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


def _stream_source(name: str, lanes: int, step: str, first: Sequence[str] = (), last: Sequence[str] = ()) -> str:
    names = {"vector": f"<{lanes} x float>", "mangled": f"v{lanes}f32"}
    steps = [step.format(i=i, **names) for i in range(UNROLLED)]
    return _STREAM.format(name=name, body="\n".join([*first, *steps]), end="\n".join(last), unrolled=UNROLLED, **names)


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
