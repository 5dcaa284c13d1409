"""Trip counts: how often a loop runs, given the loops around it.

A guard `16*i_o + i_i < 60` need not be tested in the body. All coefficients are positive and every variable starts at
0, so the guard bounds each of its loops by an expression of the loops around it: `i_i < min(16, 60 - 16*i_o)` here, or
with the loops interchanged `i_o < (60 - i_i + 15) // 16`. No iteration is empty, and every point is visited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass

from mlhood.dataflow.nest.affine import Affine
from mlhood.dataflow.nest.loop_nest import LoopNest


@dataclass(frozen=True)
class TripCount:
    """The minimum of a constant and of quotients of affine expressions.

    Args:
        constant: The constant.
        quotients: Expressions of the outer loops, and the divisor of each; rounded down.
    """

    constant: int
    quotients: tuple[tuple[Affine, int], ...] = ()

    def code(self, values: Mapping[str, int]) -> str:
        """Return it as Python, where unrolled outer loops have these values."""
        constant, texts = self.constant, []
        for dividend, divisor in self.quotients:
            dividend = dividend.substitute(values)
            if not dividend.terms:
                constant = min(constant, dividend.constant // divisor)
            else:
                texts.append(str(dividend) if divisor == 1 else f"({dividend}) // {divisor}")
        return f"min({', '.join([str(constant), *texts])})" if texts else str(constant)


def trip_count(nest: LoopNest, name: str, outside: Collection[str]) -> TripCount:
    """Return a loop's trip count.

    Args:
        nest: The nest.
        name: The loop.
        outside: The loops around it, whose values are known.
    """
    constant, quotients, around = nest.extents[name], [], frozenset(outside)
    for guard in nest.guards:
        factor, outer = guard.expression.coefficient(name), guard.expression.restrict(around)
        largest = outer.bounds(nest.extents)[1] + factor * (nest.extents[name] - 1)
        if not factor or largest < guard.bound:
            continue
        dividend = Affine(constant=guard.bound + factor - 1) + outer * -1
        if outer.terms:
            quotients.append((dividend, factor))
        else:
            constant = min(constant, dividend.constant // factor)
    return TripCount(constant, tuple(quotients))
