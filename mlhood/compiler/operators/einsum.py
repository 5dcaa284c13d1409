"""Sums of products by Einstein's notation."""

from __future__ import annotations

import math
import re
import string
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from mlhood.compiler.hir.operator import Operator, common_element, namespace, require, require_unquantized
from mlhood.compiler.hir.types import Dim, Shape, TensorType, broadcast
from mlhood.compiler.hir.values import Value
from mlhood.compiler.operators.base import NO_BOUNDS, POSITIONAL, STAYS_FLOAT, export_directly
from mlhood.compiler.operators.onnx_node import OnnxNode

_TERM = re.compile(r"[A-Za-z]*(\.\.\.)?[A-Za-z]*")


@dataclass(frozen=True)
class Einsum(Operator):
    """y[result] = sum of the products of the inputs' elements, over all indices that the result does not have.

    Attributes:
        equation: A term of letters for each input, one letter an axis, "..." for further axes, which are broadcast,
            and after "->" that of the result, without spaces: "bij,bjk->bik".
    """

    equation: str

    arity = (1, None)
    onnx = ("Einsum",)
    family = "product"
    quantization_rule = STAYS_FLOAT
    sink_transpose = POSITIONAL
    value_range = NO_BOUNDS
    to_onnx = export_directly

    def infer(self, *inputs: TensorType) -> TensorType:
        require_unquantized(*inputs)
        terms, result = self._terms()
        count = len(inputs)
        require(len(terms) == count, "the equation must have a term for each input", expected=count, got=self.equation)
        lengths: dict[str, Dim] = {}
        leading: Shape = ()
        for term, x in zip(terms, inputs, strict=True):
            axes, more = _split(term, x)
            for letter, length in axes:
                (lengths[letter],) = broadcast((lengths.get(letter, 1),), (length,))
            leading = broadcast(leading, more)
        unknown = [letter for letter in result.replace("...", "") if letter not in lengths]
        require(not unknown, "the result has an index that no input has", got=self.equation)
        require("..." in result or not leading, "the result must have the broadcast axes `...`", got=self.equation)
        before, _, after = result.partition("...")
        shape = (*(lengths[i] for i in before), *(leading if "..." in result else ()), *(lengths[i] for i in after))
        return TensorType(common_element(*inputs), shape)

    def evaluate(self, *inputs: np.ndarray) -> np.ndarray:
        first, *others = inputs
        xp = namespace(first)
        y = xp.einsum(self.equation, *inputs, optimize=bool(others) and first.dtype.kind == "f")
        return xp.asarray(y, first.dtype)

    def macs(self, inputs: Sequence[tuple[int, ...]], output: tuple[int, ...]) -> int:
        """Return the products of all combinations of indices: a sequence of smaller products may take fewer."""
        lengths: dict[str, int] = {}
        further = [1]
        for term, shape in zip(self._terms()[0], inputs, strict=True):
            axes, more = _split(term, TensorType("float32", shape))
            lengths |= {letter: max(int(length), lengths.get(letter, 1)) for letter, length in axes}
            further.append(math.prod(map(int, more)))
        return math.prod(lengths.values()) * max(further)

    def _terms(self) -> tuple[list[str], str]:
        left, _, result = self.equation.partition("->")
        valid = all(_TERM.fullmatch(term) for term in (*left.split(","), result)) and "->" in self.equation
        example = "terms of letters and `...`, such as bij,bjk->bik"
        require(valid, "the equation is not valid", expected=example, got=self.equation)
        letters = result.replace("...", "")
        require(len(set(letters)) == len(letters), "an index of the result is repeated", got=self.equation)
        return left.split(","), result

    @classmethod
    def from_onnx(cls, source: OnnxNode) -> Value:
        return source.add(cls(explicit(source.attribute("equation", ""))), *source.inputs)


def explicit(equation: str) -> str:
    """Return an equation without spaces and with its result: by default, all indices that appear once, sorted."""
    equation = equation.replace(" ", "")
    if "->" in equation:
        return equation
    letters = sorted(letter for letter in string.ascii_letters if equation.count(letter) == 1)
    return f"{equation}->{'...' if '...' in equation else ''}{''.join(letters)}"


def _split(term: str, x: TensorType) -> tuple[list[tuple[str, Dim]], Shape]:
    """Return the axes of an input that have letters, with them, and the others."""
    before, dots, after = term.partition("...")
    named = len(before) + len(after)
    fits = x.rank == named or (dots and x.rank >= named)
    require(bool(fits), "a term of the equation does not match its input", expected=term, got=list(x.shape))
    end = x.rank - len(after)
    axes = [*zip(before, x.shape, strict=False), *zip(after, x.shape[end:], strict=True)]
    return axes, x.shape[len(before) : end]


OPERATORS = (Einsum,)
