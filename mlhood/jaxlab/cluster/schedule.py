"""Pipeline parallelism as a schedule: which stage works on which microbatch when, and how long it waits.

A network is cut into stages, a batch into microbatches. The forward pass of a microbatch goes down the stages, its
backward pass up again; the batch ends when all gradients are there. Until its backward pass ends, a stage holds the
activations of a microbatch.

Sources: Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS 2019,
section 2.3; D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section
3.2 (1F1B); D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM",
SC 2021, section 2.2 (1F1B with a flush, and interleaved).
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from itertools import pairwise

from mlhood.errors import ClusterError

FORWARD, BACKWARD = "forward", "backward"
MOST_SLOTS = 200_000
_TOLERANCE = 1e-9  # of the length of the schedule

Seconds = float | Iterable[float]
Task = tuple[str, int, int]  # kind, stage, microbatch


@dataclass(frozen=True)
class Slot:
    """One pass of one microbatch through one stage.

    Args:
        stage: Of the network, counted from its input.
        microbatch: Counted from 0.
        kind: FORWARD or BACKWARD.
        start: Seconds since the batch began.
        end: Likewise.
    """

    stage: int
    microbatch: int
    kind: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """How long it takes."""
        return self.end - self.start

    @property
    def task(self) -> Task:
        """What is done, whenever it is."""
        return self.kind, self.stage, self.microbatch


@dataclass(frozen=True)
class Schedule:
    """One batch on all devices; stage `i` runs on device `i % devices`.

    Args:
        name: For pictures.
        devices: How many there are.
        microbatches: Parts of the batch.
        forward: Seconds of a microbatch's forward pass, for each stage.
        backward: Seconds of its backward pass, for each stage.
        slots: Device by device, in the order in which they run.
        communication: Seconds between the end of a stage and the start of the next, if that is on another device.
    """

    name: str
    devices: int
    microbatches: int
    forward: tuple[float, ...]
    backward: tuple[float, ...]
    slots: tuple[Slot, ...] = field(repr=False)
    communication: float = 0

    @property
    def stages(self) -> int:
        """Parts of the network."""
        return len(self.forward)

    @cached_property
    def seconds(self) -> float:
        """From the first start to the last end."""
        return max(slot.end for slot in self.slots)

    @property
    def bubble(self) -> float:
        """Share of all devices' time in which they do nothing."""
        busy = sum(slot.seconds for slot in self.slots)
        return 1 - busy / (self.devices * self.seconds)

    def of_device(self, device: int) -> list[Slot]:
        """Return a device's slots in the order in which they run."""
        return [slot for slot in self.slots if slot.stage % self.devices == device]

    def held(self, device: int) -> list[tuple[float, int]]:
        """Return how many forward passes' activations a device holds from which time on.

        They are there from the start of a forward pass to the end of its backward pass.
        """
        own = self.of_device(device)
        changes = [(slot.start, 1) for slot in own if slot.kind == FORWARD]
        changes += [(slot.end, -1) for slot in own if slot.kind == BACKWARD]
        totals: dict[float, int] = {}
        count = 0
        for time, change in sorted(changes):  # what ends goes before what begins at the same time
            count += change
            totals[time] = count
        return list(totals.items())

    def peak(self, device: int) -> int:
        """Return the most forward passes whose activations a device holds at once."""
        return max(count for _, count in self.held(device))

    def faults(self) -> list[str]:
        """Return what is wrong with this schedule, in words; it is not asked how it was made."""
        wanted = {(kind, i, j) for kind in (FORWARD, BACKWARD) for i in range(self.stages)
                  for j in range(self.microbatches)}  # fmt: skip
        found = {slot.task: slot for slot in self.slots}
        if len(found) < len(self.slots) or found.keys() != wanted:
            return ["not every stage has one forward and one backward slot for each microbatch"]
        return [*self._wrong_lengths(), *self._overlaps(), *self._too_early(found)]

    def verify(self) -> None:
        """Check that every slot begins after what it needs, and that a device does one thing at a time.

        Raises:
            ClusterError: It is not so; the error names the first fault.
        """
        if faults := self.faults():
            raise ClusterError("this schedule cannot run", where=self.name, got=faults[0])

    def _wrong_lengths(self) -> Iterator[str]:
        for slot in self.slots:
            wanted = (self.forward if slot.kind == FORWARD else self.backward)[slot.stage]
            if abs(slot.seconds - wanted) > self._margin or slot.start < -self._margin:
                yield f"{told(slot.task)} runs from {slot.start:g} to {slot.end:g}, but takes {wanted:g} from 0 on"

    def _overlaps(self) -> Iterator[str]:
        for device in range(self.devices):
            own = sorted(self.of_device(device), key=lambda slot: (slot.start, slot.end))
            for before, after in pairwise(own):
                if after.start < before.end - self._margin:
                    yield f"{told(after.task)} begins on device {device} before {told(before.task)} ends"

    def _too_early(self, found: dict[Task, Slot]) -> Iterator[str]:
        for slot in self.slots:
            for task in needs(slot.task, self.stages):
                arrived = found[task].end + transfer(task, slot.task, self.devices, self.communication)
                if slot.start < arrived - self._margin:
                    yield f"{told(slot.task)} begins before it has what {told(task)} gives"

    @property
    def _margin(self) -> float:
        return _TOLERANCE * self.seconds


def gpipe(
    stages: int, microbatches: int, forward: Seconds = 1, backward: Seconds = 2, communication: float = 0
) -> Schedule:
    """Return GPipe's schedule: all forward passes, then all backward passes, the last microbatch's first.

    Args:
        stages: Parts of the network, each on a device of its own.
        microbatches: Parts of the batch.
        forward: Seconds of a microbatch's forward pass, for all stages or for each.
        backward: Seconds of its backward pass; about twice as long, as there is a gradient by inputs and one by
            weights.
        communication: Seconds between two stages; devices compute meanwhile.

    Raises:
        ClusterError: There is nothing to run, or too much; a time is not a number above zero.
    """
    _check_sizes(stages, microbatches)
    order = [(FORWARD, j) for j in range(microbatches)] + [(BACKWARD, j) for j in reversed(range(microbatches))]
    orders = [[(kind, stage, j) for kind, j in order] for stage in range(stages)]
    return in_order("GPipe", orders, forward, backward, communication)


def one_forward_one_backward(
    stages: int, microbatches: int, forward: Seconds = 1, backward: Seconds = 2, communication: float = 0
) -> Schedule:
    """Return the schedule 1F1B: a stage begins a backward pass as soon as it can, and so holds fewer activations.

    Stage s of p begins with p - s - 1 forward passes, then takes turns, and ends with the backward passes that are
    left. Arguments and errors are those of `gpipe`.
    """
    _check_sizes(stages, microbatches)
    orders = []
    for stage in range(stages):
        ahead = min(stages - stage - 1, microbatches)
        orders.append([(kind, stage, j) for kind, j in _turns(ahead, microbatches)])
    return in_order("1F1B", orders, forward, backward, communication)


def interleaved(
    devices: int, microbatches: int, chunks: int = 2, forward: float = 1, backward: float = 2, communication: float = 0
) -> Schedule:
    """Return Megatron-LM's interleaved 1F1B: each device has several short stages, which makes the bubble shorter.

    Args:
        devices: How many there are.
        microbatches: Parts of the batch, a multiple of the devices.
        chunks: Stages on each device; stage i runs on device i % devices.
        forward: Seconds of a microbatch's forward pass through all stages of one device.
        backward: Seconds of its backward pass through them.
        communication: Seconds between two stages on different devices.

    Raises:
        ClusterError: As for `gpipe`; or the microbatches are not a multiple of the devices.
    """
    _check_sizes(devices, microbatches, chunks)
    if microbatches % devices:
        raise ClusterError("an interleaved schedule takes microbatches in groups of as many as there are devices",
                           expected=f"a multiple of {devices}", got=microbatches)  # fmt: skip
    count = microbatches * chunks
    orders = []
    for device in range(devices):
        ahead = min(2 * (devices - device - 1) + (chunks - 1) * devices, count)
        turns = _turns(ahead, count)
        orders.append([_in_group(kind, number, device, devices, chunks) for kind, number in turns])
    each = [forward / chunks] * (devices * chunks), [backward / chunks] * (devices * chunks)
    return in_order(f"interleaved 1F1B, {chunks} stages a device", orders, *each, communication)


def ideal_bubble(devices: int, microbatches: int, chunks: int = 1) -> float:
    """Return the idle share with equal stages and without communication: (p - 1) / (v m + p - 1).

    That is GPipe's and 1F1B's for one stage a device, and the interleaved schedule's for several.

    Args:
        devices: p.
        microbatches: m.
        chunks: v, stages a device.
    """
    _check_sizes(devices, microbatches, chunks)
    return (devices - 1) / (chunks * microbatches + devices - 1)


def in_order(
    name: str, orders: Sequence[Sequence[Task]], forward: Seconds = 1, backward: Seconds = 2, communication: float = 0
) -> Schedule:
    """Return the schedule in which each device does its tasks in a given order, each as soon as it can.

    Args:
        name: For pictures.
        orders: For each device its tasks: (kind, stage, microbatch). Stage i runs on device i % len(orders).
        forward: Seconds of a forward pass, for all stages or for each.
        backward: Seconds of a backward pass.
        communication: Seconds between two stages on different devices.

    Raises:
        ClusterError: A task is missing, comes twice or on a wrong device; devices wait for each other in a circle; a
            time is not a number above zero.
    """
    devices = len(orders)
    tasks = [task for order in orders for task in order]
    if not tasks:
        raise ClusterError("a schedule needs something to do", where=name, expected="one or more tasks", got="none")
    stages, microbatches = 1 + max(task[1] for task in tasks), 1 + max(task[2] for task in tasks)
    if not _complete(orders, stages, microbatches):
        raise ClusterError("these orders are no schedule", where=name, got=f"{len(tasks)} tasks",
                           expected=f"on device i of {devices}, for each stage i, i + {devices}, ... one forward and "
                           f"one backward pass of each of {microbatches} microbatches")  # fmt: skip
    times = {FORWARD: _each("forward", forward, stages), BACKWARD: _each("backward", backward, stages)}
    if not (communication >= 0 and math.isfinite(communication)):
        raise ClusterError("this is no time", where="communication", expected="seconds, 0 or more", got=communication)
    slots = tuple(_placed(name, orders, times, stages, communication))
    return Schedule(name, devices, microbatches, times[FORWARD], times[BACKWARD], slots, communication)


def needs(task: Task, stages: int) -> list[Task]:
    """Return what must have ended before: the stage before or, on the way back, behind; the own forward pass."""
    kind, stage, microbatch = task
    if kind == FORWARD:
        return [(FORWARD, stage - 1, microbatch)] if stage else []
    behind = [(BACKWARD, stage + 1, microbatch)] if stage + 1 < stages else []
    return [(FORWARD, stage, microbatch), *behind]


def transfer(before: Task, after: Task, devices: int, communication: float) -> float:
    """Return the seconds that a result is on its way between two tasks: none if both are on one device."""
    return communication if before[1] % devices != after[1] % devices else 0


def told(task: Task) -> str:
    """Return a task in words."""
    kind, stage, microbatch = task
    return f"{kind} of microbatch {microbatch} in stage {stage}"


def _placed(
    name: str,
    orders: Sequence[Sequence[Task]],
    times: dict[str, tuple[float, ...]],
    stages: int,
    communication: float,
) -> list[Slot]:
    """Let each device go as far in its order as it gets, until all are through."""
    done: dict[Task, Slot] = {}
    reached, free = [0] * len(orders), [0.0] * len(orders)
    left = sum(map(len, orders))
    while left:
        before = left
        for device, order in enumerate(orders):
            while reached[device] < len(order) and all(one in done for one in needs(order[reached[device]], stages)):
                task = order[reached[device]]
                there = [done[one].end + transfer(one, task, len(orders), communication) for one in needs(task, stages)]
                start = max([free[device], *there])
                done[task] = Slot(task[1], task[2], task[0], start, start + times[task[0]][task[1]])
                free[device] = done[task].end
                reached[device] += 1
                left -= 1
        if left == before:
            waiting = next(order[at] for order, at in zip(orders, reached, strict=True) if at < len(order))
            raise ClusterError("devices wait for each other in a circle", where=name, got=f"{told(waiting)} never runs")
    return [done[task] for order in orders for task in order]


def _turns(ahead: int, count: int) -> list[tuple[str, int]]:
    """Return `ahead` forward passes, then one forward and one backward pass in turn, then what is left."""
    both = [turn for i in range(count - ahead) for turn in ((FORWARD, ahead + i), (BACKWARD, i))]
    rest = [(BACKWARD, i) for i in range(count - ahead, count)]
    return [(FORWARD, i) for i in range(ahead)] + both + rest


def _in_group(kind: str, number: int, device: int, devices: int, chunks: int) -> Task:
    """Return what a device does as its n-th pass of one kind: as many microbatches as devices, chunk after chunk."""
    group, inside = divmod(number, devices * chunks)
    chunk, microbatch = divmod(inside, devices)
    chunk = chunk if kind == FORWARD else chunks - 1 - chunk
    return kind, chunk * devices + device, group * devices + microbatch


def _complete(orders: Sequence[Sequence[Task]], stages: int, microbatches: int) -> bool:
    for device, order in enumerate(orders):
        own = range(device, stages, len(orders))
        wanted = {(kind, i, j) for kind in (FORWARD, BACKWARD) for i in own for j in range(microbatches)}
        if len(order) != len(wanted) or set(order) != wanted:
            return False
    return True


def _each(what: str, seconds: Seconds, stages: int) -> tuple[float, ...]:
    times = tuple(seconds) if isinstance(seconds, Iterable) else (seconds,) * stages
    if len(times) != stages or not all(0 < time < math.inf for time in times):
        raise ClusterError(f"this is no time of a {what} pass", got=times[:8],
                           expected=f"seconds above 0: one number, or {stages}, one for each stage")  # fmt: skip
    return times


def _check_sizes(stages: int, microbatches: int, chunks: int = 1) -> None:
    for what, size in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if not isinstance(size, int) or size < 1:
            raise ClusterError(f"there is no such number of {what}", expected="1 or more", got=repr(size))
    if 2 * stages * microbatches * chunks > MOST_SLOTS:
        raise ClusterError("this schedule is too long", expected=f"at most {MOST_SLOTS:,} slots",
                           got=f"{2 * stages * microbatches * chunks:,}")  # fmt: skip
