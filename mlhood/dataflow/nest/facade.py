"""The fluent interface of loop nests: steps and analyses as methods, `gemm(64, 64, 64).tile(i=16, j=16).count()`.

A facade: the modules that it imports depend on `LoopNest` only, and never import it back.
"""

from __future__ import annotations

from mlhood.dataflow.nest import count, program, running, schedule, space
from mlhood.dataflow.nest.loop_nest import LoopNest


class Nest(LoopNest):
    """An immutable loop nest that prints, runs and counts; a step of its schedule returns a new one.

    Each method is documented by the function behind it.
    """

    split = schedule.split
    tile = schedule.tile
    reorder = schedule.reorder
    unroll = schedule.unroll
    vectorise = schedule.vectorise
    pack = schedule.pack

    visits = space.visits

    source = running.source
    run = running.run

    count = count.count

    def __str__(self) -> str:
        return program.pseudo_code(self)
