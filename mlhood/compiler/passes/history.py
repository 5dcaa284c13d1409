"""A record of the passes that changed a graph."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from mlhood.compiler.hir.graph import Graph

if TYPE_CHECKING:
    import pandas as pd


@dataclass(frozen=True)
class PassRun:
    """One run of a pass that changed the graph.

    Args:
        name: The pass's name.
        before: Number of nodes before it.
        after: Number of nodes after it.
    """

    name: str
    before: int
    after: int


class History:
    """An observer for `optimize` that records each pass that changed the graph.

        history = History(graph)
        optimized = optimize(graph, observe=history)
        history.table()

    Args:
        graph: The graph to be optimised.
        snapshots: Keep a copy of the graph after every step, for drawings and diffs.
    """

    def __init__(self, graph: Graph, *, snapshots: bool = False) -> None:
        self.steps: list[PassRun] = []
        self.snapshots: list[Graph] | None = [graph.copy()] if snapshots else None
        self._nodes = len(graph.nodes)

    def __call__(self, name: str, graph: Graph) -> None:
        """Record a pass that changed the graph."""
        self.steps.append(PassRun(name, self._nodes, len(graph.nodes)))
        self._nodes = len(graph.nodes)
        if self.snapshots is not None:
            self.snapshots.append(graph.copy())

    def table(self) -> pd.DataFrame:
        """Return one row per step: pass, nodes before, nodes after."""
        import pandas as pd

        rows = [(step.name, step.before, step.after) for step in self.steps]
        return pd.DataFrame(rows, columns=["pass", "nodes before", "nodes after"])
