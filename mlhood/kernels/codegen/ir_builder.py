"""A thin layer over llvmlite's IRBuilder: integers with Python's operators, pointers, loops and vectors of float32.

The loops of a kernel read as they would in Python, and LLVM promotes the variables to registers:

    with code.loop(0, rows) as row:
        total.set(code.fma(a.at(row).load(), b.at(row).load(), total.get()))

Integers are 64 bits wide; dividends and divisors must not be negative.

Blocks are transposed in vector registers, without going through memory. Rows are exchanged within groups of four lanes
first, then whole groups: on x86 these are the cheap shuffles (`unpck`, `vshuff32x4`, `vperm2f128`), on ARM `zip` and
`trn`.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

from llvmlite import ir

INDEX = ir.IntType(64)
INT32 = ir.IntType(32)
BYTE = ir.IntType(8)
FLOAT = ir.FloatType()
ADDRESS = ir.PointerType()
GROUP = 4
_LINE_BYTES = 64


@dataclass(frozen=True)
class Int:
    """A 64-bit integer value of the function being built."""

    builder: ir.IRBuilder
    value: Any

    def _operand(self, other: Int | int) -> Any:
        return other.value if isinstance(other, Int) else INDEX(other)

    def __add__(self, other: Int | int) -> Int:
        return Int(self.builder, self.builder.add(self.value, self._operand(other)))

    def __sub__(self, other: Int | int) -> Int:
        return Int(self.builder, self.builder.sub(self.value, self._operand(other)))

    def __mul__(self, other: Int | int) -> Int:
        return Int(self.builder, self.builder.mul(self.value, self._operand(other)))

    def __floordiv__(self, other: Int | int) -> Int:
        return Int(self.builder, self.builder.udiv(self.value, self._operand(other)))

    def __mod__(self, other: Int | int) -> Int:
        return Int(self.builder, self.builder.urem(self.value, self._operand(other)))

    def __lt__(self, other: Int | int) -> Any:
        return self.builder.icmp_signed("<", self.value, self._operand(other))

    def equals(self, other: Int | int) -> Any:
        """Return the condition that both are equal."""
        return self.builder.icmp_signed("==", self.value, self._operand(other))

    def minimum(self, other: Int | int) -> Int:
        """Return the smaller of the two."""
        return Int(self.builder, self.builder.select(self < other, self.value, self._operand(other)))

    def where(self, condition: Any, other: Int | int) -> Int:
        """Select this value if the condition holds, else the other."""
        return Int(self.builder, self.builder.select(condition, self.value, self._operand(other)))


@dataclass(frozen=True)
class Pointer:
    """A pointer to elements of one type; offsets count elements."""

    builder: ir.IRBuilder
    value: Any
    element: Any = FLOAT

    def at(self, index: Int | int) -> Pointer:
        """Return the pointer offset by `index` elements."""
        offset = index.value if isinstance(index, Int) else INDEX(index)
        return Pointer(self.builder, self.builder.gep(self.value, [offset], source_etype=self.element), self.element)

    def cast(self, element: Any) -> Pointer:
        """Return the same address as a pointer to another element type."""
        return Pointer(self.builder, self.value, element)

    def load(self, lanes: int | None = None) -> Any:
        """Load one element, or a vector of `lanes` consecutive ones."""
        kind = self.element if lanes is None else ir.VectorType(self.element, lanes)
        return self.builder.load(self.value, typ=kind, align=_size(self.element))

    def store(self, value: Any) -> None:
        """Store an element, or a vector of elements."""
        self.builder.store(value, self.value, align=_size(self.element))

    def load_int(self) -> Int:
        """Load a 64-bit integer."""
        return Int(self.builder, self.load())

    def is_null(self) -> Any:
        """Return the condition that this is the null pointer."""
        return self.builder.icmp_unsigned("==", self.value, ir.Constant(ADDRESS, None))


@dataclass(frozen=True)
class StackSlot:
    """A mutable stack slot: a loop counter, an accumulator."""

    builder: ir.IRBuilder
    slot: Any
    kind: Any

    def get(self) -> Any:
        """Return its current value."""
        return self.builder.load(self.slot, typ=self.kind)

    def set(self, value: Any) -> None:
        """Assign a value."""
        self.builder.store(value, self.slot)


class FunctionBuilder:
    """A function under construction.

    Args:
        module: The module that gets the function.
        name: Its symbol.
        parameters: Name -> `INDEX`, `FLOAT` or `ADDRESS`, in order.
        public: Whether Python calls it; LLVM may change the calling convention of the others.
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
        """Return an integer constant."""
        return Int(self.builder, INDEX(value))

    def variable(self, kind: Any, initial: Any) -> StackSlot:
        """Declare a variable and initialize it here."""
        with self.builder.goto_entry_block():
            slot = self.builder.alloca(kind)
        variable = StackSlot(self.builder, slot, kind)
        variable.set(initial)
        return variable

    def buffer(self, count: int, element: Any = FLOAT) -> Pointer:
        """Allocate elements on the stack, aligned to a cache line; they live as long as the call."""
        with self.builder.goto_entry_block():
            slot: Any = self.builder.alloca(ir.ArrayType(element, count))
            slot.align = _LINE_BYTES
            # llvmlite keeps the allocated type, but vectors are stored here, too: make it an opaque pointer
            address = self.builder.inttoptr(self.builder.ptrtoint(slot, INDEX), ADDRESS)
        return Pointer(self.builder, address, element)

    @contextmanager
    def loop(self, start: Int | int, stop: Int | int, step: Int | int = 1) -> Iterator[Int]:
        """Build a counted loop over range(start, stop, step); the `with` block is its body."""
        first = start if isinstance(start, Int) else self.constant(start)
        counter = self.variable(INDEX, first.value)
        with self.while_loop(lambda: Int(self.builder, counter.get()) < stop):
            index = Int(self.builder, counter.get())
            yield index
            counter.set((index + step).value)

    @contextmanager
    def while_loop(self, condition: Any) -> Iterator[None]:
        """Build a loop that runs while `condition()`, evaluated before each iteration, holds."""
        head, body, after = (self.builder.append_basic_block(name) for name in ("head", "body", "after"))
        self.builder.branch(head)
        self.builder.position_at_end(head)
        self.builder.cbranch(condition(), body, after)
        self.builder.position_at_end(body)
        yield
        self.builder.branch(head)
        self.builder.position_at_end(after)

    def call(self, callee: FunctionBuilder, *arguments: Any) -> None:
        """Call another function of the module."""
        values = [argument.value if isinstance(argument, Int | Pointer) else argument for argument in arguments]
        self.builder.call(callee.function, [INDEX(value) if isinstance(value, int) else value for value in values])

    def prefetch(self, address: Pointer, level: Literal[1, 2] = 1) -> None:
        """Prefetch a cache line into the cache of this level; an invalid address does not fault."""
        name = "llvm.prefetch.p0"
        access, locality, data = INT32(0), INT32(4 - level), INT32(1)
        signature = ir.FunctionType(ir.VoidType(), [ADDRESS, INT32, INT32, INT32])
        callee = self.module.globals.get(name) or ir.Function(self.module, signature, name)
        self.builder.call(callee, [address.value, access, locality, data])

    def in_order(self, vector: Any, constraint: str) -> Any:
        """Return the vector, computed at this point: no load, and no other vector in order, moves across it.

        LLVM's scheduler takes the loads of a register tile ahead of its multiply-adds, and then spills half of the
        tile; the processor reorders them itself. No instruction is emitted.

        Args:
            vector: What is computed.
            constraint: Of the target; if it is empty, nothing is done.
        """
        if not constraint:
            return vector
        identity = ir.FunctionType(vector.type, [vector.type])
        return self.builder.asm(identity, "", f"={constraint},0", [vector], side_effect=True)

    def ret(self) -> None:
        """Terminate the function."""
        self.builder.ret_void()

    # -- vectors

    def splat(self, scalar: Any, lanes: int) -> Any:
        """Return a vector with the scalar in every lane."""
        vector = ir.VectorType(scalar.type, lanes)
        undefined = ir.Constant(vector, ir.Undefined)
        first = self.builder.insert_element(undefined, scalar, INT32(0))
        return self.builder.shuffle_vector(first, undefined, ir.Constant(ir.VectorType(INT32, lanes), [0] * lanes))

    def shuffle(self, a: Any, b: Any, lanes: Sequence[int]) -> Any:
        """Return the given lanes of the concatenation of a and b."""
        return self.builder.shuffle_vector(a, b, ir.Constant(ir.VectorType(INT32, len(lanes)), list(lanes)))

    def fma(self, a: Any, b: Any, c: Any) -> Any:
        """Return a * b + c, fused where the processor can."""
        name = f"llvm.fmuladd.v{a.type.count}f32"
        signature = ir.FunctionType(a.type, [a.type] * 3)
        callee = self.module.globals.get(name) or ir.Function(self.module, signature, name)
        return self.builder.call(callee, (a, b, c))

    def maximum(self, vector: Any, floor: Any) -> Any:
        """Return the larger of the two; NaN in the vector propagates."""
        return self.builder.select(self.builder.fcmp_ordered("<", vector, floor), floor, vector)

    def minimum(self, vector: Any, ceiling: Any) -> Any:
        """Return the smaller of the two; NaN in the vector propagates."""
        return self.builder.select(self.builder.fcmp_ordered(">", vector, ceiling), ceiling, vector)


def _size(element: Any) -> int:
    return 4 if element is FLOAT else element.width // 8


def transpose(code: FunctionBuilder, rows: Sequence[Any], lanes: int) -> list[Any]:
    """Return the columns of up to `lanes` rows, one per vector; lanes beyond the last row are undefined.

    Args:
        code: The function that gets the shuffles.
        rows: Vectors of `lanes` float32.
        lanes: 4, 8 or 16.
    """
    missing = ir.Constant(ir.VectorType(FLOAT, lanes), ir.Undefined)
    block = [*rows, *[missing] * (lanes - len(rows))]
    # the (row, lane) that each lane of the block came from
    origins = [[(row, lane) for lane in range(lanes)] for row in range(lanes)]
    for distance, low, high in _stages(lanes):
        block, origins = _exchange(code, block, origins, distance, low, high)
    columns = {origin[0][1]: vector for origin, vector in zip(origins, block, strict=True)}
    return [columns[lane] for lane in range(lanes)]


def _stages(lanes: int) -> list[tuple[int, list[int], list[int]]]:
    """Return for each stage the distance between partner rows, and the lanes that the two results take.

    Lanes index the concatenation of both partners.
    """
    quads = range(0, lanes, GROUP)
    pairs = [[(q + j, lanes + q + j) for q in quads for j in half] for half in ((0, 1), (2, 3))]
    twos = [[(q + j, q + j + 1, lanes + q + j, lanes + q + j + 1) for q in quads] for j in (0, 2)]
    groups = [range(start, 2 * lanes, 2 * GROUP) for start in (0, GROUP)]
    halves = [[tuple(range(start, start + GROUP)) for start in group] for group in groups]
    stages = [(1, pairs), (2, twos)]
    distance = GROUP
    while distance < lanes:
        stages.append((distance, halves))
        distance *= 2
    return [(distance, _flatten(low), _flatten(high)) for distance, (low, high) in stages]


def _flatten(groups: Sequence[Sequence[int]]) -> list[int]:
    return [lane for group in groups for lane in group]


def _exchange(
    code: FunctionBuilder, block: list[Any], origins: list[list[Any]], distance: int, low: list[int], high: list[int]
) -> tuple[list[Any], list[list[Any]]]:
    block, origins = list(block), list(origins)
    for row in range(len(block)):
        partner = row + distance
        if row & distance:
            continue
        a, b, both = block[row], block[partner], origins[row] + origins[partner]
        block[row], block[partner] = code.shuffle(a, b, low), code.shuffle(a, b, high)
        origins[row], origins[partner] = [both[lane] for lane in low], [both[lane] for lane in high]
    return block, origins
