"""How much of a graph could run at the same time: work, critical path, width, and a schedule on n workers.

Work W is what one worker takes, span S what the longest path takes, with which no number of workers can do without.
Any schedule on n workers takes max(W / n, S) or more; one that lets no worker wait while a node is ready takes at most
W / n + (1 - 1 / n) S.

Sources: R. L. Graham, "Bounds on multiprocessing timing anomalies", SIAM J. on Applied Mathematics 17 (1969); T. C. Hu,
"Parallel sequencing and assembly line problems", Operations Research 9 (1961), for the order by levels; T. Adam,
K. Chandy, J. Dickson, "A comparison of list schedules for parallel processing systems", Comm. ACM 17 (1974), for HLFET;
R. P. Dilworth, "A decomposition theorem for partially ordered sets", Annals of Mathematics 51 (1950), for the width.
"""

from __future__ import annotations

import heapq
import math
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np
import pandas as pd

from mlhood.compiler.hir.graph import Graph
from mlhood.errors import CompilerError

MOST_NODES = 4000  # the width takes memory that grows with the nodes' square
_TOLERANCE = 1e-9  # of the length of a schedule


@dataclass(frozen=True)
class Tasks:
    """What is to be done, and what must be done before.

    Args:
        costs: What each task costs, by name: seconds, multiply-accumulates, bytes or 1; 0 or more.
        needs: The tasks that must end before it begins, by name; each comes before in `costs`.

    Raises:
        CompilerError: A cost is no number, a task comes before what it needs, or there is none.
    """

    costs: dict[str, float]
    needs: dict[str, tuple[str, ...]]

    def __post_init__(self) -> None:
        if not self.costs:
            raise CompilerError("there is nothing to schedule", expected="one or more tasks", got="none")
        seen: set[str] = set()
        for name, cost in self.costs.items():
            if not (cost >= 0 and math.isfinite(cost)):
                raise CompilerError("this is no cost", where=name, expected="a number, 0 or more", got=repr(cost))
            if late := [other for other in self.needs.get(name, ()) if other not in seen]:
                raise CompilerError("a task comes before what it needs", where=name, got=", ".join(late))
            seen.add(name)

    @cached_property
    def users(self) -> dict[str, list[str]]:
        """The tasks that need each."""
        found: dict[str, list[str]] = {name: [] for name in self.costs}
        for name in self.costs:
            for other in self.needs.get(name, ()):
                found[other].append(name)
        return found

    @property
    def work(self) -> float:
        """W: what one worker takes."""
        return sum(self.costs.values())

    @cached_property
    def levels(self) -> dict[str, float]:
        """The cost of the longest path from each task's beginning to the end of all."""
        found: dict[str, float] = {}
        for name in reversed(self.costs):
            found[name] = self.costs[name] + max((found[user] for user in self.users[name]), default=0)
        return found

    @property
    def span(self) -> float:
        """S: what the critical path takes."""
        return max(self.levels.values())

    @property
    def parallelism(self) -> float:
        """W / S: the most that any number of workers can make of it; 1 if nothing costs anything."""
        return self.work / self.span if self.span else 1.0

    def critical_path(self) -> list[str]:
        """Return the tasks of a path that costs as much as the span; the first in order, if there are several."""
        starts = [name for name in self.costs if not self.needs.get(name)]
        path: list[str] = []
        while starts:
            path.append(max(starts, key=lambda name: self.levels[name]))
            starts = self.users[path[-1]]
        return path

    def depths(self) -> dict[str, int]:
        """Return how many tasks come before each on the longest way to it, whatever they cost."""
        found: dict[str, int] = {}
        for name in self.costs:
            found[name] = max((found[other] + 1 for other in self.needs.get(name, ())), default=0)
        return found

    def widest(self) -> list[str]:
        """Return as many tasks as there are that can all run at the same time: a largest antichain.

        By Dilworth's theorem its size is the least number of chains that cover all tasks, and so the number of tasks
        less a largest matching of tasks with tasks that come later (König's theorem tells which they are).

        Raises:
            CompilerError: There are too many tasks for the square of their number.
        """
        if len(self.costs) > MOST_NODES:
            raise CompilerError("there are too many tasks to find the widest place", expected=f"at most {MOST_NODES:,}",
                                got=f"{len(self.costs):,}")  # fmt: skip
        from scipy.sparse import csr_array
        from scipy.sparse.csgraph import maximum_bipartite_matching

        after = self._reachable()
        partner = maximum_bipartite_matching(csr_array(after), perm_type="column")  # of each as the earlier one
        earlier, later = _alternating(after, partner)
        return [name for name, left, right in zip(self.costs, earlier, later, strict=True) if left and not right]

    @property
    def width(self) -> int:
        """The most tasks that can run at the same time."""
        return len(self.widest())

    def _reachable(self) -> np.ndarray:
        """Return, [tasks, tasks], whether the second one comes after the first, by however many steps."""
        place = {name: i for i, name in enumerate(self.costs)}
        after = np.zeros((len(place), len(place)), bool)
        for name in reversed(self.costs):
            for user in self.users[name]:
                after[place[name], place[user]] = True
                after[place[name]] |= after[place[user]]
        return after


@dataclass(frozen=True)
class Slot:
    """A task on a worker, from when to when.

    Args:
        name: The task's.
        worker: Counted from 0.
        start: In the unit of the costs.
        end: Likewise.
    """

    name: str
    worker: int
    start: float
    end: float


@dataclass(frozen=True)
class ListSchedule:
    """All tasks on n workers.

    Args:
        tasks: What is done.
        workers: n.
        slots: In the order in which they begin.
    """

    tasks: Tasks
    workers: int
    slots: tuple[Slot, ...] = field(repr=False)

    @property
    def length(self) -> float:
        """T: when all is done."""
        return max(slot.end for slot in self.slots)

    @property
    def speed_up(self) -> float:
        """W / T."""
        return self.tasks.work / self.length if self.length else 1.0

    @property
    def bounds(self) -> tuple[float, float]:
        """Graham's: no schedule is shorter than the first, and none by a list longer than the second."""
        return bounds(self.tasks, self.workers)

    def faults(self) -> Iterator[str]:
        """Give what is wrong with this schedule, in words; it is not asked how it was made."""
        margin = _TOLERANCE * self.length
        slots = {slot.name: slot for slot in self.slots}
        if Counter(slot.name for slot in self.slots) != Counter(self.tasks.costs.keys()):
            yield "not every task is done once"
            return
        last: dict[int, Slot] = {}
        for slot in sorted(self.slots, key=lambda slot: (slot.start, slot.end)):
            if abs(slot.end - slot.start - self.tasks.costs[slot.name]) > margin or slot.start < 0:
                yield f"{slot.name} runs from {slot.start:g} to {slot.end:g}, but costs {self.tasks.costs[slot.name]:g}"
            if not 0 <= slot.worker < self.workers:
                yield f"{slot.name} runs on worker {slot.worker} of {self.workers}"
            if slot.worker in last and slot.start < last[slot.worker].end - margin:
                yield f"{slot.name} begins on worker {slot.worker} before {last[slot.worker].name} ends"
            for other in self.tasks.needs.get(slot.name, ()):
                if slot.start < slots[other].end - margin:
                    yield f"{slot.name} begins before {other}, which it needs, ends"
            last[slot.worker] = slot


def tasks(graph: Graph, costs: Mapping[str, float] | pd.Series | None = None) -> Tasks:
    """Return a graph's nodes as tasks; what runs, constants aside.

    Args:
        graph: The graph.
        costs: By the node's name: the column `seconds` or `macs` of `Executable.profile()`, or what `traffic` returns;
            1 for each node if left out.

    Raises:
        CompilerError: A node has no cost, the graph none, or a cycle.
    """
    order = graph.topological()
    known = {node.name: 1 for node in order} if costs is None else {name: float(cost) for name, cost in costs.items()}
    if missing := [node.name for node in order if node.name not in known]:
        raise CompilerError(
            "nodes have no cost", where=f"graph {graph.name!r}", got=", ".join(missing[:5]),
            todo="take the costs of this very graph: executable.profile(...)['seconds'] and executable.graph",
        )  # fmt: skip
    needs = {}
    for node in order:
        found = [value.producer.name for value in node.inputs if value is not None and value.producer is not None]
        needs[node.name] = tuple(dict.fromkeys(found))
    return Tasks({node.name: known[node.name] for node in order}, needs)


def traffic(graph: Graph) -> dict[str, int]:
    """Return the bytes that each node reads and writes, constants and each input once.

    Raises:
        CompilerError: A shape is open.
    """
    found = {}
    for node in graph.topological():
        values = dict.fromkeys(value for value in (*node.inputs, *node.outputs) if value is not None)
        sizes = [(value.type.size, value.type.dtype.itemsize) for value in values]
        if any(isinstance(size, str) for size, _ in sizes):
            raise CompilerError("the shapes are open", where=node.where, expected="numbers",
                                got=", ".join(str(value.type.shape) for value in values),
                                todo="import with sizes: import_model(model, dims={'batch': 1})")  # fmt: skip
        found[node.name] = sum(int(size) * width for size, width in sizes)
    return found


def bounds(tasks: Tasks, workers: int) -> tuple[float, float]:
    """Return Graham's bounds of the length of a list schedule: max(W / n, S), and W / n + (1 - 1 / n) S."""
    share = tasks.work / _checked(workers)
    return max(share, tasks.span), share + (1 - 1 / workers) * tasks.span


def list_schedule(tasks: Tasks, workers: int) -> ListSchedule:
    """Return HLFET's schedule: when a worker is free, the ready task with the longest way to the end begins.

    Raises:
        CompilerError: There is no worker.
    """
    rank = {name: (-tasks.levels[name], i) for i, name in enumerate(tasks.costs)}
    left = {name: len(tasks.needs.get(name, ())) for name in tasks.costs}
    ready = [(rank[name], name) for name, count in left.items() if not count]
    heapq.heapify(ready)
    free = list(range(_checked(workers)))
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
                left[user] -= 1
                if not left[user]:
                    heapq.heappush(ready, (rank[user], user))
    return ListSchedule(tasks, workers, tuple(slots))


def _alternating(after: np.ndarray, partner: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Return which tasks a walk from unmatched ones reaches, as the earlier one of a pair and as the later one.

    The walk goes from an earlier to any later one, and from there back to the one that it is matched with.
    """
    earlier = partner < 0
    later = np.zeros(len(partner), bool)
    back = np.full(len(partner), -1)
    back[partner[partner >= 0]] = np.flatnonzero(partner >= 0)
    waiting = list(np.flatnonzero(earlier))
    while waiting:
        new = after[waiting.pop()] & ~later
        later |= new
        found = back[new]
        fresh = found[(found >= 0) & ~earlier[found]]
        earlier[fresh] = True
        waiting += list(fresh)
    return earlier, later


def _checked(workers: int) -> int:
    if not isinstance(workers, int) or workers < 1:
        raise CompilerError("there is no such number of workers", expected="1 or more", got=repr(workers))
    return workers
