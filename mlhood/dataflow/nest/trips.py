"""How often a loop runs, given the loops around it.

A guard `16*i_o + i_i < 60` need not be tested in the body. All coefficients are positive and every variable starts at
0, so that it ends each of its loops at a place which the loops around it tell: `i_i < min(16, 60 - 16*i_o)` here, or
with the loops exchanged `i_o < (60 - i_i + 15) // 16`. No round is empty, and every point is visited.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlhood.dataflow.nest.affine import Affine

if TYPE_CHECKING:
    from mlhood.dataflow.nest.nest import Nest


@dataclass(frozen=True)
class Trips:
    """A number of rounds: the least of a constant, and of expressions divided by a number.

    Args:
        most: The constant.
        rests: Expressions of the loops outside, and what each is divided by, rounded down.
    """

    most: int
    rests: tuple[tuple[Affine, int], ...]

    def text(self, values: Mapping[str, int]) -> str:
        """Return it in Python, where some loops outside have been unrolled to these values."""
        most, texts = self.most, []
        for rest, factor in self.rests:
            rest = rest.fixed(values)
            if not rest.terms:
                most = min(most, rest.constant // factor)
            else:
                texts.append(str(rest) if factor == 1 else f"({rest}) // {factor}")
        return f"min({', '.join([str(most), *texts])})" if texts else str(most)


def trips(nest: Nest, name: str, outside: Collection[str]) -> Trips:
    """Return how often a loop runs.

    Args:
        nest: The nest.
        name: The loop.
        outside: The loops around it, which have a value already.
    """
    most, rests, around = nest.extents[name], [], frozenset(outside)
    for guard in nest.guards:
        factor, before = guard.sum.of(name), guard.sum.only(around)
        highest = before.limits(nest.extents)[1] + factor * (nest.extents[name] - 1)
        if not factor or highest < guard.bound:
            continue
        rest = Affine(constant=guard.bound + factor - 1) + before * -1
        if before.terms:
            rests.append((rest, factor))
        else:
            most = min(most, rest.constant // factor)
    return Trips(most, tuple(rests))
