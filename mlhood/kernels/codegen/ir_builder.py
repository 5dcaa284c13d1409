"""A small language for writing LLVM IR in Python: integers, pointers, loops and vectors of float32.

The loops of a kernel are written with it as they would be in Python, and LLVM makes registers out of its variables:

    with code.loop(0, rows) as row:
        total.set(code.fma(a.at(row).load(), b.at(row).load(), total.get()))

Integers are 64 bits wide; those that are divided must not be negative.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

from llvmlite import ir

INDEX = ir.IntType(64)
INT32 = ir.IntType(32)
BYTE = ir.IntType(8)
FLOAT = ir.FloatType()
ADDRESS = ir.PointerType()

Number = "Int | int"


@dataclass(frozen=True)
class Int:
    """An integer of the program that is being written."""

    builder: ir.IRBuilder
    value: Any

    def _other(self, other: Int | int) -> Any:
        return other.value if isinstance(other, Int) else INDEX(other)

    def _make(self, value: Any) -> Int:
        return Int(self.builder, value)

    def __add__(self, other: Int | int) -> Int:
        return self._make(self.builder.add(self.value, self._other(other)))

    def __sub__(self, other: Int | int) -> Int:
        return self._make(self.builder.sub(self.value, self._other(other)))

    def __mul__(self, other: Int | int) -> Int:
        return self._make(self.builder.mul(self.value, self._other(other)))

    def __floordiv__(self, other: Int | int) -> Int:
        return self._make(self.builder.udiv(self.value, self._other(other)))

    def __mod__(self, other: Int | int) -> Int:
        return self._make(self.builder.urem(self.value, self._other(other)))

    def __lt__(self, other: Int | int) -> Any:
        return self.builder.icmp_signed("<", self.value, self._other(other))

    def equals(self, other: Int | int) -> Any:
        """Return the condition that both are the same."""
        return self.builder.icmp_signed("==", self.value, self._other(other))

    def least(self, other: Int | int) -> Int:
        """Return the smaller of the two."""
        return self._make(self.builder.select(self < other, self.value, self._other(other)))

    def where(self, condition: Any, other: Int | int) -> Int:
        """Return this if the condition holds, else the other."""
        return self._make(self.builder.select(condition, self.value, self._other(other)))


@dataclass(frozen=True)
class Pointer:
    """An address of elements of one type, float32 unless said otherwise; distances count elements."""

    builder: ir.IRBuilder
    value: Any
    element: Any = FLOAT

    def at(self, index: Int | int) -> Pointer:
        """Return the address `index` elements further on."""
        step = index.value if isinstance(index, Int) else INDEX(index)
        return Pointer(self.builder, self.builder.gep(self.value, [step], source_etype=self.element), self.element)

    def of(self, element: Any) -> Pointer:
        """Return the same address, read as elements of another type."""
        return Pointer(self.builder, self.value, element)

    def load(self, lanes: int | None = None) -> Any:
        """Return the element there, or a vector of as many as `lanes` from there on."""
        kind = self.element if lanes is None else ir.VectorType(self.element, lanes)
        return self.builder.load(self.value, typ=kind, align=_bytes(self.element))

    def store(self, value: Any) -> None:
        """Write an element, or a vector of elements."""
        self.builder.store(value, self.value, align=_bytes(self.element))

    def integer(self) -> Int:
        """Return the 64-bit integer there."""
        return Int(self.builder, self.load())

    def is_null(self) -> Any:
        """Return the condition that this points nowhere."""
        return self.builder.icmp_unsigned("==", self.value, ir.Constant(ADDRESS, None))


@dataclass(frozen=True)
class Variable:
    """Something that changes while the program runs: a loop's counter, an accumulator."""

    builder: ir.IRBuilder
    slot: Any
    kind: Any

    def get(self) -> Any:
        """Return what it holds."""
        return self.builder.load(self.slot, typ=self.kind)

    def set(self, value: Any) -> None:
        """Change what it holds."""
        self.builder.store(value, self.slot)


class Code:
    """A function that is being written.

    Args:
        module: Where it goes.
        name: Its name.
        parameters: Its parameters: name -> `INDEX`, `FLOAT` or `ADDRESS`.
        public: Whether Python calls it; LLVM is free to change the others.
    """

    def __init__(self, module: ir.Module, name: str, parameters: dict[str, Any], *, public: bool = True) -> None:
        self.module = module
        self.function = ir.Function(module, ir.FunctionType(ir.VoidType(), parameters.values()), name)
        if not public:
            self.function.linkage = "internal"
            self.function.attributes.add("noinline")
        self.builder = ir.IRBuilder(self.function.append_basic_block("entry"))
        self.parameters = dict(zip(parameters, self.function.args, strict=True))

    def integer(self, name: str) -> Int:
        """Return a parameter of type `INDEX`."""
        return Int(self.builder, self.parameters[name])

    def pointer(self, name: str, element: Any = FLOAT) -> Pointer:
        """Return a parameter of type `ADDRESS`."""
        return Pointer(self.builder, self.parameters[name], element)

    def constant(self, value: int) -> Int:
        """Return an integer known when the code is written."""
        return Int(self.builder, INDEX(value))

    def variable(self, kind: Any, first: Any) -> Variable:
        """Return a new variable and what it starts with."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(kind)
        made = Variable(self.builder, slot, kind)
        made.set(first)
        return made

    @contextmanager
    def loop(self, start: Int | int, stop: Int | int, step: int = 1) -> Iterator[Int]:
        """Run the block for start, start + step, ... below stop; not at all if there is none."""
        first = start if isinstance(start, Int) else self.constant(start)
        counter = self.variable(INDEX, first.value)
        with self.whilst(lambda: Int(self.builder, counter.get()) < stop):
            index = Int(self.builder, counter.get())
            yield index
            counter.set((index + step).value)

    @contextmanager
    def whilst(self, condition: Any) -> Iterator[None]:
        """Run the block as long as `condition()`, written before each round, holds."""
        head, body, after = (self.builder.append_basic_block(part) for part in ("head", "body", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(condition(), body, after)
        self.builder.position_at_end(body)
        yield
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def when(self, condition: Any) -> Any:
        """Run the block if the condition holds."""
        return self.builder.if_then(condition)

    def call(self, callee: Code, *arguments: Any) -> None:
        """Call another function of the module."""
        plain = [one.value if isinstance(one, Int | Pointer) else one for one in arguments]
        self.builder.call(callee.function, [INDEX(one) if isinstance(one, int) else one for one in plain])

    def fetch(self, place: Pointer) -> None:
        """Ask for a cache line that will be read soon; an address that is not there does no harm."""
        name = "llvm.prefetch.p0"
        read, keep, data = INT32(0), INT32(3), INT32(1)
        signature = ir.FunctionType(ir.VoidType(), [ADDRESS, INT32, INT32, INT32])
        callee = self.module.globals.get(name) or ir.Function(self.module, signature, name)
        self.builder.call(callee, [place.value, read, keep, data])

    def done(self) -> None:
        """End the function."""
        self.builder.ret_void()

    # -- vectors

    def splat(self, scalar: Any, lanes: int) -> Any:
        """Return a vector with the scalar in every lane."""
        vector = ir.VectorType(scalar.type, lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        one = self.builder.insert_element(undefined, scalar, INT32(0))
        return self.builder.shuffle_vector(one, undefined, ir.Constant(ir.VectorType(INT32, lanes), [0] * lanes))

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Return the named lanes of a and b side by side."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes)))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, rounded once where the processor can, else twice."""
        return self.intrinsic("llvm.fmuladd", a, b, c)

    def at_least(self, vector: Any, floor: Any) -> Any:
        """Return the larger of the two, and NaN where the vector is."""
        return self.builder.select(self.builder.fcmp_ordered("<", vector, floor), floor, vector)

    def at_most(self, vector: Any, ceiling: Any) -> Any:
        """Return the smaller of the two, and NaN where the vector is."""
        return self.builder.select(self.builder.fcmp_ordered(">", vector, ceiling), ceiling, vector)

    def intrinsic(self, name: str, *arguments: Any) -> Any:
        """Call one of LLVM's own operations on vectors that all have the same type."""
        kind = arguments[0].type
        full = f"{name}.v{kind.count}f32"
        known = self.module.globals.get(full)
        signature = ir.FunctionType(kind, [kind] * len(arguments))
        return self.builder.call(known or ir.Function(self.module, signature, full), arguments)


def _bytes(element: Any) -> int:
    return 4 if element is FLOAT else element.width // 8
