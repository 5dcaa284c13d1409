"""What the passes did to a graph, step by step."""

from __future__ import annotations

from dataclasses import dataclass

import pandas as pd

from mlhood.compiler.hir.graph import Graph


@dataclass(frozen=True)
class Step:
    """One run of a pass that changed the graph.

    Args:
        name: The pass.
        before: Number of nodes before it.
        after: Number of nodes after it.
    """

    name: str
    before: int
    after: int


class History:
    """An observer for `optimize` that keeps what each pass did.

        history = History(graph)
        optimized = optimize(graph, observe=history)
        history.table()

    Args:
        graph: The graph that is going to be optimised.
        snapshots: Whether to keep a copy of the graph after every step, for drawings and diffs.
    """

    def __init__(self, graph: Graph, *, snapshots: bool = False) -> None:
        self.steps: list[Step] = []
        self.snapshots: list[Graph] | None = [graph.copy()] if snapshots else None
        self._nodes = len(graph.nodes)

    def __call__(self, name: str, graph: Graph) -> None:
        """Take note of a pass that changed the graph."""
        self.steps.append(Step(name, self._nodes, len(graph.nodes)))
        self._nodes = len(graph.nodes)
        if self.snapshots is not None:
            self.snapshots.append(graph.copy())

    def table(self) -> pd.DataFrame:
        """Return one row a step: pass, nodes before, nodes after."""
        return pd.DataFrame(
            {
                "pass": [step.name for step in self.steps],
                "nodes before": [step.before for step in self.steps],
                "nodes after": [step.after for step in self.steps],
            }
        )
