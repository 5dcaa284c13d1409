"""Native code inside what Numba compiles: a vectorised statement as an intrinsic.

Arrays of a nest do not alias, which metadata of the statement tells LLVM: it then hoists loop-invariant loads into
registers, and keeps an unrolled output tile there during the reduction.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

from llvmlite import ir

from mlhood.dataflow.nest.loop_nest import ELEMENT_BYTES

_FLOAT, _INT32, _INT64, _ADDRESS = ir.FloatType(), ir.IntType(32), ir.IntType(64), ir.PointerType()
_MAX_LANES = 16  # of the widest registers; LLVM splits longer vectors well only if they are powers of two


@functools.cache
def multiply_add(lanes: int, strides: tuple[int, ...]) -> Any:
    """Return a function for compiled code: output[:] += input[:] * input[:] ..., `lanes` elements at a time.

    Its one argument is a tuple: an array's address and an element's offset, for the output and for each input.

    Args:
        lanes: Number of lanes.
        strides: For the output and each input 1 if lanes are contiguous, 0 if all are the same element; if that is the
            output, the lanes' products are summed.
    """
    from numba import types
    from numba.extending import intrinsic

    @intrinsic
    def vector(_: Any, operands: Any) -> Any:
        def generate(context: Any, builder: ir.IRBuilder, __: Any, arguments: Sequence[Any]) -> Any:
            for first in range(0, lanes, _MAX_LANES):
                _Statement(builder, min(_MAX_LANES, lanes - first), strides, arguments[0], first).emit()
            return context.get_dummy_value()

        return types.void(operands), generate

    return vector


class _Statement:
    """Emits the statement for some lanes, starting with lane `first`."""

    def __init__(self, builder: ir.IRBuilder, lanes: int, strides: tuple[int, ...], operands: Any, first: int) -> None:
        self.builder, self.strides = builder, strides
        self.vector = ir.VectorType(_FLOAT, lanes)
        words = [builder.extract_value(operands, i) for i in range(2 * len(strides))]
        bases = [builder.inttoptr(word, _ADDRESS) for word in words[::2]]
        offsets = [builder.add(word, _INT64(first * step)) for word, step in zip(words[1::2], strides, strict=True)]
        pairs = zip(bases, offsets, strict=True)
        self.addresses = [builder.gep(base, [offset], source_etype=_FLOAT) for base, offset in pairs]
        domain = builder.module.add_metadata([self._text("loop nest")])
        self.scopes = [builder.module.add_metadata([self._text(f"operand {i}"), domain]) for i in range(len(strides))]

    def emit(self) -> None:
        """Emit the product, the sum and the store."""
        product, *factors = [self._splat(operand) for operand in range(1, len(self.strides))]
        for factor in factors[:-1]:
            product = self.builder.fmul(product, factor)
        if self.strides[0]:
            total = self._multiply_add(self._load(0, self.vector), product, factors[-1:])
        else:
            product = self.builder.fmul(product, factors[-1]) if factors else product
            total = self._call("llvm.vector.reduce.fadd", _FLOAT, [self._load(0, _FLOAT), product], ["reassoc"])
        self._scoped(self.builder.store(total, self.addresses[0], align=ELEMENT_BYTES), 0)

    def _multiply_add(self, total: Any, product: Any, factor: list[Any]) -> Any:
        """Return total + product, or total + product * factor, fused where the processor can."""
        if not factor:
            return self.builder.fadd(total, product)
        return self._call("llvm.fmuladd", self.vector, [product, *factor, total])

    def _splat(self, operand: int) -> Any:
        """Return an operand as a vector; a single element is broadcast."""
        if self.strides[operand]:
            return self._load(operand, self.vector)
        empty, zeros = ir.Constant(self.vector, ir.Undefined), [0] * self.vector.count
        element = self.builder.insert_element(empty, self._load(operand, _FLOAT), _INT32(0))
        return self.builder.shuffle_vector(element, empty, ir.Constant(ir.VectorType(_INT32, len(zeros)), zeros))

    def _load(self, operand: int, kind: Any) -> Any:
        return self._scoped(self.builder.load(self.addresses[operand], typ=kind, align=ELEMENT_BYTES), operand)

    def _call(self, operation: str, result: Any, values: list[Any], fastmath: Sequence[str] = ()) -> Any:
        """Call an LLVM intrinsic."""
        module, name = self.builder.module, f"{operation}.v{self.vector.count}f32"
        kind = ir.FunctionType(result, [value.type for value in values])
        function = module.globals.get(name) or ir.Function(module, kind, name)
        return self.builder.call(function, values, fastmath=fastmath)

    def _scoped(self, instruction: Any, operand: int) -> Any:
        """Put a load or store into its operand's alias scope, which overlaps no other operand's."""
        others = [scope for i, scope in enumerate(self.scopes) if i != operand]
        add = self.builder.module.add_metadata
        instruction.set_metadata("alias.scope", add([self.scopes[operand]]))
        instruction.set_metadata("noalias", add(others))
        return instruction

    def _text(self, text: str) -> ir.MetaDataString:
        return ir.MetaDataString(self.builder.module, text)
