"""Task parallelism of a graph: work, critical path, width, and a list schedule on n workers.

Work W is the time of one worker, span S the length of the longest path, a lower bound for any number of workers.
A schedule on n workers takes at least max(W / n, S); a greedy one, which never leaves a worker idle while a task is
ready, at most W / n + (1 - 1 / n) S.

Sources: R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM J. on Applied Mathematics 17 (1969); T. C. Hu,
"Parallel sequencing and assembly line problems", Operations Research 9 (1961), for the order by levels; T. Adam,
K. Chandy, J. Dickson, "A comparison of list schedules for parallel processing systems", Comm. ACM 17 (1974), for HLFET;
R. P. Dilworth, "A decomposition theorem for partially ordered sets", Annals of Mathematics 51 (1950), for the width.
"""

from __future__ import annotations

import heapq
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError

MAX_TASKS = 4000  # limits the memory for the width, which is quadratic in the tasks


@dataclass(frozen=True)
class TaskGraph:
    """Tasks with their costs and dependencies: a weighted directed acyclic graph.

    Args:
        costs: The cost of each task, by name: seconds, multiply-accumulates, bytes or 1; not negative.
        dependencies: The tasks that must finish before a task starts, by its name; they precede it in `costs`.

    Raises:
        CompilerError: There are no tasks, a cost is invalid, or the tasks are not in topological order.
    """

    costs: dict[str, float]
    dependencies: dict[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        if not self.costs:
            raise CompilerError("nothing to schedule", expected="one or more tasks", got="none")
        preceding: set[str] = set()
        for name, cost in self.costs.items():
            if not (cost >= 0 and math.isfinite(cost)):
                raise CompilerError("invalid cost", where=name, expected="a finite number, 0 or more", got=repr(cost))
            if late := [other for other in self.dependencies.get(name, ()) if other not in preceding]:
                raise CompilerError("a task precedes its dependencies", where=name, got=", ".join(late))
            preceding.add(name)

    @cached_property
    def users(self) -> dict[str, list[str]]:
        """The tasks that depend on each task."""
        users: dict[str, list[str]] = {name: [] for name in self.costs}
        for name in self.costs:
            for other in self.dependencies.get(name, ()):
                users[other].append(name)
        return users

    @property
    def work(self) -> float:
        """W, the time of one worker."""
        return sum(self.costs.values())

    @cached_property
    def levels(self) -> dict[str, float]:
        """The cost of the longest path from the start of each task to the end."""
        levels: dict[str, float] = {}
        for name in reversed(self.costs):
            levels[name] = self.costs[name] + max((levels[user] for user in self.users[name]), default=0)
        return levels

    @property
    def span(self) -> float:
        """S, the cost of the critical path."""
        return max(self.levels.values())

    @property
    def parallelism(self) -> float:
        """W / S, the upper bound of the speed-up on any number of workers; 1 if all costs are 0."""
        return self.work / self.span if self.span else 1.0

    def critical_path(self) -> list[str]:
        """Return the tasks of a most expensive path; the first in order, if there are several."""
        candidates = [name for name in self.costs if not self.dependencies.get(name)]
        path: list[str] = []
        while candidates:
            path.append(max(candidates, key=lambda name: self.levels[name]))
            candidates = self.users[path[-1]]
        return path

    def depths(self) -> dict[str, int]:
        """Return the number of tasks on the longest path to each task, regardless of their costs."""
        depths: dict[str, int] = {}
        for name in self.costs:
            depths[name] = max((depths[other] + 1 for other in self.dependencies.get(name, ())), default=0)
        return depths

    def max_antichain(self) -> list[str]:
        """Return a maximum antichain: a largest set of tasks that can all run at the same time.

        By Dilworth's theorem its size is the minimum number of chains that cover all tasks, which is the number of
        tasks minus the size of a maximum matching of tasks with their descendants. König's theorem gives its members.

        Raises:
            CompilerError: There are too many tasks; the memory is quadratic in their number.
        """
        if len(self.costs) > MAX_TASKS:
            expected, got = f"at most {MAX_TASKS:,}", f"{len(self.costs):,}"
            raise CompilerError("too many tasks to compute the width", expected=expected, got=got)
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_bipartite_matching

        reachable = self._reachable()
        partner = maximum_bipartite_matching(csr_array(reachable), perm_type="column")  # of each task on the left side
        left, right = _alternating_paths(reachable, partner)
        return [name for name, is_member in zip(self.costs, left & ~right, strict=True) if is_member]

    @property
    def width(self) -> int:
        """The maximum number of tasks that can run at the same time."""
        return len(self.max_antichain())

    def _reachable(self) -> np.ndarray:
        """Return the transitive closure: bool [tasks, tasks], whether the second task is a descendant of the first."""
        index = {name: i for i, name in enumerate(self.costs)}
        reachable = np.zeros((len(index), len(index)), bool)
        for name in reversed(self.costs):
            for user in self.users[name]:
                reachable[index[name], index[user]] = True
                reachable[index[name]] |= reachable[index[user]]
        return reachable


@dataclass(frozen=True)
class Slot:
    """The execution of a task on a worker.

    Args:
        name: The task's name.
        worker: The worker's index.
        start: Start time, in the unit of the costs.
        end: End time.
    """

    name: str
    worker: int
    start: float
    end: float


@dataclass(frozen=True)
class ListSchedule:
    """A schedule of all tasks on n workers.

    Args:
        tasks: The tasks.
        workers: n.
        slots: The tasks' executions, by start time.
    """

    tasks: TaskGraph
    workers: int
    slots: tuple[Slot, ...] = field(repr=False)

    @property
    def length(self) -> float:
        """T, the makespan: the time at which the last task ends."""
        return max(slot.end for slot in self.slots)

    @property
    def speed_up(self) -> float:
        """W / T."""
        return self.tasks.work / self.length if self.length else 1.0


def tasks(graph: Graph, costs: Mapping[str, float] | pd.Series | None = None) -> TaskGraph:
    """Return a graph's nodes as tasks.

    Args:
        graph: The graph.
        costs: By the node's name: the column `seconds` or `macs` of `Executable.profile()`; by default 1 for
            each node.

    Raises:
        CompilerError: A node has no cost, or the graph has no nodes or a cycle.
    """
    order = graph.topological()
    by_name = {node.name: 1.0 for node in order} if costs is None else {k: float(v) for k, v in costs.items()}
    if missing := [node.name for node in order if node.name not in by_name]:
        raise CompilerError(
            "nodes have no cost",
            where=f"graph {graph.name!r}",
            got=", ".join(missing[:5]),
            todo="take the costs of the same graph: executable.profile(...)['seconds'] and executable.graph",
        )
    dependencies = {}
    for node in order:
        producers = [value.producer.name for value in node.inputs if value is not None and value.producer is not None]
        dependencies[node.name] = tuple(dict.fromkeys(producers))
    return TaskGraph({node.name: by_name[node.name] for node in order}, dependencies)


def bounds(tasks: TaskGraph, workers: int) -> tuple[float, float]:
    """Return Graham's bounds of the length of a list schedule: max(W / n, S), and W / n + (1 - 1 / n) S."""
    _check_workers(workers)
    share = tasks.work / workers
    return max(share, tasks.span), share + (1 - 1 / workers) * tasks.span


def list_schedule(tasks: TaskGraph, workers: int) -> ListSchedule:
    """Return HLFET's schedule: a free worker starts the ready task with the highest level.

    Raises:
        CompilerError: The number of workers is invalid.
    """
    _check_workers(workers)
    rank = {name: (-tasks.levels[name], i) for i, name in enumerate(tasks.costs)}
    unfinished = {name: len(tasks.dependencies.get(name, ())) for name in tasks.costs}
    ready = [(rank[name], name) for name, count in unfinished.items() if not count]
    heapq.heapify(ready)
    free = list(range(workers))
    running: list[tuple[float, int, str]] = []
    slots, now = [], 0.0
    while ready or running:
        while ready and free:
            name, worker = heapq.heappop(ready)[1], heapq.heappop(free)
            slots.append(Slot(name, worker, now, now + tasks.costs[name]))
            heapq.heappush(running, (slots[-1].end, worker, name))
        now = running[0][0]
        while running and running[0][0] == now:
            _, worker, name = heapq.heappop(running)
            heapq.heappush(free, worker)
            for user in tasks.users[name]:
                unfinished[user] -= 1
                if not unfinished[user]:
                    heapq.heappush(ready, (rank[user], user))
    return ListSchedule(tasks, workers, tuple(slots))


def _alternating_paths(edges: np.ndarray, partner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which vertices alternating paths from unmatched left vertices reach, on the left and on the right.

    Args:
        edges: bool [left, right], the edges of the bipartite graph.
        partner: The right vertex that each left one is matched with, or -1.
    """
    left = partner < 0
    right = np.zeros(len(partner), bool)
    left_partner = np.full(len(partner), -1)
    left_partner[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    worklist = list(np.flatnonzero(left))
    while worklist:
        new_right = edges[worklist.pop()] & ~right
        right |= new_right
        matched = left_partner[new_right]
        new_left = matched[(matched >= 0) & ~left[matched]]
        left[new_left] = True
        worklist += list(new_left)
    return left, right


def _check_workers(workers: int) -> None:
    if not isinstance(workers, int) or workers < 1:
        raise CompilerError("invalid number of workers", expected="1 or more", got=repr(workers))
