"""Pipeline parallelism as a schedule: when each stage works on which microbatch, and how long it is idle.

A network is divided into stages, a batch into microbatches. The forward pass of a microbatch runs through the stages,
its backward pass through them in reverse; the batch ends when all gradients are complete. A stage stores the
activations of a microbatch until its backward pass ends.

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
MAX_SLOTS = 200_000
_TOLERANCE = 1e-9  # relative to the schedule's makespan

Seconds = float | Iterable[float]
Task = tuple[str, int, int]  # kind, stage, microbatch


@dataclass(frozen=True)
class Slot:
    """One pass of one microbatch through one stage.

    Args:
        stage: Index of the stage, 0 at the network's input.
        microbatch: Index of the microbatch.
        kind: FORWARD or BACKWARD.
        start: Seconds since the start of the batch.
        end: Likewise.
    """

    stage: int
    microbatch: int
    kind: str
    start: float
    end: float

    @property
    def seconds(self) -> float:
        """The duration."""
        return self.end - self.start

    @property
    def task(self) -> Task:
        """The pass, without its times."""
        return self.kind, self.stage, self.microbatch


@dataclass(frozen=True)
class Schedule:
    """One batch on all devices; stage `i` runs on device `i % devices`.

    Args:
        name: For figures.
        devices: Number of devices.
        microbatches: Number of microbatches.
        forward: Seconds of a microbatch's forward pass, for each stage.
        backward: Seconds of its backward pass, for each stage.
        slots: Device by device, in the order of execution.
        communication: Seconds from the end of a stage to the start of the next one on another device.
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
        """Number of stages."""
        return len(self.forward)

    @cached_property
    def seconds(self) -> float:
        """The makespan: from the first start to the last end."""
        return max(slot.end for slot in self.slots)

    @property
    def bubble(self) -> float:
        """The fraction of all devices' time in which they are idle."""
        busy = sum(slot.seconds for slot in self.slots)
        return 1 - busy / (self.devices * self.seconds)

    def device_slots(self, device: int) -> list[Slot]:
        """Return a device's slots in the order of execution."""
        return [slot for slot in self.slots if slot.stage % self.devices == device]

    def stored_activations(self, device: int) -> list[tuple[float, int]]:
        """Return the times at which the number of passes whose activations a device stores changes, and the numbers.

        They are stored from the start of a forward pass to the end of its backward pass.
        """
        slots = self.device_slots(device)
        changes = [(slot.start, 1) for slot in slots if slot.kind == FORWARD]
        changes += [(slot.end, -1) for slot in slots if slot.kind == BACKWARD]
        counts: dict[float, int] = {}
        count = 0
        for time, change in sorted(changes):  # at equal times, activations are released before others are stored
            count += change
            counts[time] = count
        return list(counts.items())

    def peak(self, device: int) -> int:
        """Return the largest number of passes whose activations a device stores at once."""
        return max(count for _, count in self.stored_activations(device))

    def violations(self) -> list[str]:
        """Return descriptions of all violated constraints, independently of how the schedule was computed."""
        slots = {slot.task: slot for slot in self.slots}
        if len(slots) < len(self.slots) or slots.keys() != _tasks(range(self.stages), self.microbatches):
            return ["not every stage has one forward and one backward slot for each microbatch"]
        return [*self._wrong_durations(), *self._overlaps(), *self._early_starts(slots)]

    def verify(self) -> None:
        """Check that every slot starts after its dependencies, and that a device runs one pass at a time.

        Raises:
            ClusterError: A constraint is violated; the error names the first.
        """
        if violations := self.violations():
            raise ClusterError("invalid schedule", where=self.name, got=violations[0])

    def _wrong_durations(self) -> Iterator[str]:
        for slot in self.slots:
            expected = (self.forward if slot.kind == FORWARD else self.backward)[slot.stage]
            if abs(slot.seconds - expected) > self._margin or slot.start < -self._margin:
                times = f"runs from {slot.start:g} to {slot.end:g}"
                yield f"{task_name(slot.task)} {times}, but takes {expected:g} from 0 on"

    def _overlaps(self) -> Iterator[str]:
        for device in range(self.devices):
            slots = sorted(self.device_slots(device), key=lambda slot: (slot.start, slot.end))
            for before, after in pairwise(slots):
                if after.start < before.end - self._margin:
                    yield f"{task_name(after.task)} begins on device {device} before {task_name(before.task)} ends"

    def _early_starts(self, slots: dict[Task, Slot]) -> Iterator[str]:
        for slot in self.slots:
            for task in dependencies(slot.task, self.stages):
                ready = slots[task].end + transfer(task, slot.task, self.devices, self.communication)
                if slot.start < ready - self._margin:
                    yield f"{task_name(slot.task)} begins before it has the result of {task_name(task)}"

    @property
    def _margin(self) -> float:
        return _TOLERANCE * self.seconds


def gpipe(
    stages: int, microbatches: int, forward: Seconds = 1, backward: Seconds = 2, communication: float = 0
) -> Schedule:
    """Return GPipe's schedule: all forward passes, then all backward passes, the last microbatch's first.

    Args:
        stages: Number of stages, each on a device of its own.
        microbatches: Number of microbatches.
        forward: Seconds of a microbatch's forward pass, for all stages or for each.
        backward: Seconds of its backward pass; about twice as long, as gradients with respect to inputs and to weights
            are computed.
        communication: Seconds between two stages; devices compute meanwhile.

    Raises:
        ClusterError: A size is less than 1 or too large, or a time is not positive.
    """
    _check_sizes(stages, microbatches)
    order = [(FORWARD, j) for j in range(microbatches)] + [(BACKWARD, j) for j in reversed(range(microbatches))]
    orders = [[(kind, stage, j) for kind, j in order] for stage in range(stages)]
    return from_orders("GPipe", orders, forward, backward, communication)


def one_forward_one_backward(
    stages: int, microbatches: int, forward: Seconds = 1, backward: Seconds = 2, communication: float = 0
) -> Schedule:
    """Return the schedule 1F1B: a stage starts a backward pass as soon as it can, and so stores fewer activations.

    Stage s of p starts with p - s - 1 warm-up forward passes, then alternates, and ends with the remaining backward
    passes. Arguments and errors are those of `gpipe`.
    """
    _check_sizes(stages, microbatches)
    orders = []
    for stage in range(stages):
        warm_up = min(stages - stage - 1, microbatches)
        orders.append([(kind, stage, j) for kind, j in _alternating(warm_up, microbatches)])
    return from_orders("1F1B", orders, forward, backward, communication)


def interleaved(
    devices: int, microbatches: int, chunks: int = 2, forward: float = 1, backward: float = 2, communication: float = 0
) -> Schedule:
    """Return Megatron-LM's interleaved 1F1B: each device has several short stages, which reduces the bubble.

    Args:
        devices: Number of devices.
        microbatches: Number of microbatches, a multiple of the devices.
        chunks: Stages on each device; stage i runs on device i % devices.
        forward: Seconds of a microbatch's forward pass through all stages of one device.
        backward: Seconds of its backward pass through them.
        communication: Seconds between two stages on different devices.

    Raises:
        ClusterError: As for `gpipe`; or the microbatches are not a multiple of the devices.
    """
    _check_sizes(devices, microbatches, chunks)
    if microbatches % devices:
        what = "an interleaved schedule needs complete groups of one microbatch per device"
        raise ClusterError(what, expected=f"a multiple of {devices}", got=microbatches)
    count = microbatches * chunks
    orders = []
    for device in range(devices):
        warm_up = min(2 * (devices - device - 1) + (chunks - 1) * devices, count)
        passes = _alternating(warm_up, count)
        orders.append([_interleaved_task(kind, i, device, devices, chunks) for kind, i in passes])
    times = [forward / chunks] * (devices * chunks), [backward / chunks] * (devices * chunks)
    return from_orders(f"interleaved 1F1B, {chunks} stages a device", orders, *times, communication)


def from_orders(
    name: str, orders: Sequence[Sequence[Task]], forward: Seconds = 1, backward: Seconds = 2, communication: float = 0
) -> Schedule:
    """Return the schedule in which each device runs its tasks in a given order, each as early as possible.

    Args:
        name: For figures.
        orders: The tasks of each device: (kind, stage, microbatch). Stage i runs on device i % len(orders).
        forward: Seconds of a forward pass, for all stages or for each.
        backward: Seconds of a backward pass.
        communication: Seconds between two stages on different devices.

    Raises:
        ClusterError: A task is missing, duplicated or on the wrong device; the orders deadlock; a time is not positive.
    """
    devices = len(orders)
    tasks = [task for order in orders for task in order]
    if not tasks:
        raise ClusterError("the schedule is empty", where=name, expected="one or more tasks", got="none")
    stages, microbatches = 1 + max(task[1] for task in tasks), 1 + max(task[2] for task in tasks)
    for device, order in enumerate(orders):
        expected = _tasks(range(device, stages, devices), microbatches)
        if len(order) != len(expected) or set(order) != expected:
            raise ClusterError(
                "the orders are incomplete or have other devices' tasks",
                where=f"{name}, device {device}",
                expected=f"for each stage i, i + {devices}, ... of device i one forward and one backward pass "
                f"of each of {microbatches} microbatches",
                got=f"{len(order)} tasks",
            )
    times = {FORWARD: _stage_times("forward", forward, stages), BACKWARD: _stage_times("backward", backward, stages)}
    if not (communication >= 0 and math.isfinite(communication)):
        raise ClusterError("invalid time of communication", expected="seconds, 0 or more", got=communication)
    slots = tuple(_simulate(name, orders, times, communication))
    return Schedule(name, devices, microbatches, times[FORWARD], times[BACKWARD], slots, communication)


def dependencies(task: Task, stages: int) -> list[Task]:
    """Return the tasks that must end first: those of the adjacent stage, and of a backward pass its forward pass."""
    kind, stage, microbatch = task
    if kind == FORWARD:
        return [(FORWARD, stage - 1, microbatch)] if stage else []
    next_stage = [(BACKWARD, stage + 1, microbatch)] if stage + 1 < stages else []
    return [(FORWARD, stage, microbatch), *next_stage]


def transfer(before: Task, after: Task, devices: int, communication: float) -> float:
    """Return the seconds of the transfer between two tasks: 0 on the same device."""
    return communication if before[1] % devices != after[1] % devices else 0


def task_name(task: Task) -> str:
    """Return a description of a task."""
    kind, stage, microbatch = task
    return f"{kind} of microbatch {microbatch} in stage {stage}"


def _simulate(
    name: str, orders: Sequence[Sequence[Task]], times: dict[str, tuple[float, ...]], communication: float
) -> list[Slot]:
    """Advance each device until its next task has to wait, in turn, until all tasks are done."""
    devices, stages = len(orders), len(times[FORWARD])
    done: dict[Task, Slot] = {}
    pending, free = [list(reversed(order)) for order in orders], [0.0] * devices
    while any(pending):
        progress = False
        for device, tasks in enumerate(pending):
            while tasks and all(needed in done for needed in dependencies(tasks[-1], stages)):
                task = tasks.pop()
                needed = dependencies(task, stages)
                ready = [done[other].end + transfer(other, task, devices, communication) for other in needed]
                start = max([free[device], *ready])
                done[task] = Slot(task[1], task[2], task[0], start, start + times[task[0]][task[1]])
                free[device] = done[task].end
                progress = True
        if not progress:
            blocked = next(tasks[-1] for tasks in pending if tasks)
            raise ClusterError("the orders deadlock", where=name, got=f"{task_name(blocked)} never runs")
    return [done[task] for order in orders for task in order]


def _tasks(stages: Iterable[int], microbatches: int) -> set[Task]:
    return {(kind, i, j) for kind in (FORWARD, BACKWARD) for i in stages for j in range(microbatches)}


def _alternating(warm_up: int, count: int) -> list[tuple[str, int]]:
    """Return `warm_up` forward passes, then forward and backward ones alternately, then the remaining backward ones."""
    steady = [step for i in range(count - warm_up) for step in ((FORWARD, warm_up + i), (BACKWARD, i))]
    cool_down = [(BACKWARD, i) for i in range(count - warm_up, count)]
    return [(FORWARD, i) for i in range(warm_up)] + steady + cool_down


def _interleaved_task(kind: str, index: int, device: int, devices: int, chunks: int) -> Task:
    """Return a device's pass number `index` of one kind: groups of one microbatch per device, chunk by chunk."""
    group, position = divmod(index, devices * chunks)
    chunk, microbatch = divmod(position, devices)
    chunk = chunk if kind == FORWARD else chunks - 1 - chunk
    return kind, chunk * devices + device, group * devices + microbatch


def _stage_times(what: str, seconds: Seconds, stages: int) -> tuple[float, ...]:
    times = tuple(seconds) if isinstance(seconds, Iterable) else (seconds,) * stages
    if len(times) != stages or not all(0 < time < math.inf for time in times):
        expected = f"seconds above 0: one number, or {stages}, one for each stage"
        raise ClusterError(f"invalid time of a {what} pass", expected=expected, got=times[:8])
    return times


def _check_sizes(stages: int, microbatches: int, chunks: int = 1) -> None:
    for what, size in (("stages", stages), ("microbatches", microbatches), ("chunks", chunks)):
        if not isinstance(size, int) or size < 1:
            raise ClusterError(f"invalid number of {what}", expected="1 or more", got=repr(size))
    slots = 2 * stages * microbatches * chunks
    if slots > MAX_SLOTS:
        raise ClusterError("the schedule is too long", expected=f"at most {MAX_SLOTS:,} slots", got=f"{slots:,}")
