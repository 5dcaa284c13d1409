"""A statement on vectors, written in LLVM IR into the code that Numba compiles.

Arrays of one nest do not overlap, which LLVM is told here: so it keeps what stays the same in a loop in registers, and
an output's tile whose rounds are unrolled stays there while the sum runs.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from mlhood.dataflow.nest.data import BYTES

_FLOAT, _INT32, _INT64, _ADDRESS = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.PointerType()
_WIDEST = 16  # lanes of the widest registers; LLVM takes longer vectors apart well only if they are powers of two


@functools.cache
def multiply_add(lanes: int, steps: tuple[int, ...]) -> Any:
    """Return a function for compiled code: output[:] += input[:] * input[:] ..., `lanes` elements at a time.

    Its one argument is a tuple: the address of an array and the element in it, for the output and for each input.

    Args:
        lanes: How many.
        steps: For the output and each input 1 if lanes are neighbours, 0 if all are the same element; where that is
            the output, the lanes' products are added up.
    """
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def vector(_: Any, operands: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, __: Any, arguments: Sequence[Any]) -> Any:
            for first in range(0, lanes, _WIDEST):
                _Statement(builder, min(_WIDEST, lanes - first), steps, arguments[0], first).write()
            return context.get_dummy_value()

        return types.void(operands), generate

    return vector


class _Statement:
    """Writes one statement for some lanes, from the first on."""

    def __init__(self, builder: ir.IRBuilder, lanes: int, steps: tuple[int, ...], operands: Any, first: int) -> None:
        self.builder, self.steps = builder, steps
        self.vector = ir.VectorType(_FLOAT, lanes)
        words = [builder.extract_value(operands, place) for place in range(2 * len(steps))]
        bases = [builder.inttoptr(word, _ADDRESS) for word in words[::2]]
        elements = [builder.add(word, _INT64(first * step)) for word, step in zip(words[1::2], steps, strict=True)]
        pairs = zip(bases, elements, strict=True)
        self.places = [builder.gep(base, [element], source_etype=_FLOAT) for base, element in pairs]
        domain = builder.module.add_metadata([self._text("loop nest")])
        self.scopes = [builder.module.add_metadata([self._text(f"operand {i}"), domain]) for i in range(len(steps))]

    def write(self) -> None:
        """Multiply, add, and write back."""
        first, *factors = [self._splat(number) for number in range(1, len(self.steps))]
        for factor in factors[:-1]:
            first = self.builder.fmul(first, factor)
        if self.steps[0]:
            total = self._add(self._load(0, self.vector), first, factors[-1:])
        else:
            product = self.builder.fmul(first, factors[-1]) if factors else first
            total = self._call("llvm.vector.reduce.fadd", _FLOAT, [self._load(0, _FLOAT), product], ["reassoc"])
        self._own(self.builder.store(total, self.places[0], align=BYTES), 0)

    def _add(self, total: Any, product: Any, factor: list[Any]) -> Any:
        """Return total + product, or total + product * factor, rounded once where the processor can."""
        if not factor:
            return self.builder.fadd(total, product)
        return self._call("llvm.fmuladd", self.vector, [product, *factor, total])

    def _splat(self, number: int) -> Any:
        """Return an operand as a vector."""
        if self.steps[number]:
            return self._load(number, self.vector)
        empty, zeros = ir.Constant(self.vector, ir.Undefined), [0] * self.vector.count
        one = self.builder.insert_element(empty, self._load(number, _FLOAT), _INT32(0))
        return self.builder.shuffle_vector(one, empty, ir.Constant(ir.VectorType(_INT32, len(zeros)), zeros))

    def _load(self, number: int, kind: Any) -> Any:
        return self._own(self.builder.load(self.places[number], typ=kind, align=BYTES), number)

    def _call(self, operation: str, result: Any, values: list[Any], freedom: Sequence[str] = ()) -> Any:
        """Call one of LLVM's own operations."""
        module, name = self.builder.module, f"{operation}.v{self.vector.count}f32"
        kind = ir.FunctionType(result, [value.type for value in values])
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, values, fastmath=freedom)

    def _own(self, instruction: Any, number: int) -> Any:
        """Mark a load or store as one of this operand's array, which no other operand's overlaps."""
        others = [scope for place, scope in enumerate(self.scopes) if place != number]
        add = self.builder.module.add_metadata
        instruction.set_metadata("alias.scope", add([self.scopes[number]]))
        instruction.set_metadata("noalias", add(others))
        return instruction

    def _text(self, text: str) -> ir.MetaDataString:
        return ir.MetaDataString(self.builder.module, text)
