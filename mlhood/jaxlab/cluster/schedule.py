"""Pipeline parallelism as a schedule: when each stage works on which microbatch, and how long it is idle.

A network is divided into stages of equal time, each on a device; a batch into microbatches. The forward pass of a
microbatch runs through the stages, its backward pass through them in reverse; the batch ends when all gradients are
complete. A stage stores the activations of a microbatch until its backward pass ends.

The unit of time is a forward pass. A backward pass takes two: it computes gradients with respect to inputs and to
weights. Transfers between stages are free.

Sources: Y. Huang et al., "GPipe: efficient training of giant neural networks using pipeline parallelism", NeurIPS 2019,
section 2.3; D. Narayanan et al., "PipeDream: generalized pipeline parallelism for DNN training", SOSP 2019, section
3.2 (1F1B); D. Narayanan et al., "Efficient large-scale language model training on GPU clusters using Megatron-LM",
SC 2021, section 2.2 (1F1B with a flush).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

FORWARD, BACKWARD = "forward", "backward"
DURATION = {FORWARD: 1, BACKWARD: 2}

Task = tuple[str, int, int]  # kind, stage, microbatch


@dataclass(frozen=True)
class Slot:
    """One pass of one microbatch through one stage.

    Args:
        kind: FORWARD or BACKWARD.
        stage: Index of the stage, 0 at the network's input.
        microbatch: Index of the microbatch.
        start: Time since the start of the batch.
    """

    kind: str
    stage: int
    microbatch: int
    start: int

    @property
    def end(self) -> int:
        """Time at which the pass ends."""
        return self.start + DURATION[self.kind]


@dataclass(frozen=True)
class Schedule:
    """One batch on all devices; stage `i` runs on device `i`.

    Args:
        name: For figures.
        stages: Number of stages.
        microbatches: Number of microbatches.
        slots: Stage by stage, in the order of execution.
    """

    name: str
    stages: int
    microbatches: int
    slots: tuple[Slot, ...] = field(repr=False)

    @property
    def length(self) -> int:
        """The makespan: from the first start to the last end."""
        return max(slot.end for slot in self.slots)

    @property
    def bubble(self) -> float:
        """The fraction of all devices' time in which they are idle."""
        busy = sum(slot.end - slot.start for slot in self.slots)
        return 1 - busy / (self.stages * self.length)

    def stored_activations(self, stage: int) -> list[tuple[int, int]]:
        """Return the times at which the number of passes whose activations a stage stores changes, and the numbers.

        They are stored from the start of a forward pass to the end of its backward pass.
        """
        slots = [slot for slot in self.slots if slot.stage == stage]
        changes = [(slot.start, 1) if slot.kind == FORWARD else (slot.end, -1) for slot in slots]
        counts: dict[int, int] = {}
        count = 0
        for time, change in sorted(changes):  # at equal times, activations are released before others are stored
            count += change
            counts[time] = count
        return list(counts.items())

    def peak(self, stage: int) -> int:
        """Return the largest number of passes whose activations a stage stores at once."""
        return max(count for _, count in self.stored_activations(stage))


def gpipe(stages: int, microbatches: int) -> Schedule:
    """Return GPipe's schedule: all forward passes, then all backward passes, the last microbatch's first.

    Args:
        stages: Number of stages, each on a device.
        microbatches: Number of microbatches.
    """
    order = [(FORWARD, j) for j in range(microbatches)] + [(BACKWARD, j) for j in reversed(range(microbatches))]
    return _schedule("GPipe", [order] * stages, microbatches)


def one_forward_one_backward(stages: int, microbatches: int) -> Schedule:
    """Return the schedule 1F1B: a stage starts a backward pass as soon as it can, and so stores fewer activations.

    Stage s of p starts with p - s - 1 warm-up forward passes, then alternates, and ends with the remaining backward
    passes. Arguments are those of `gpipe`.
    """
    orders = []
    for stage in range(stages):
        warm_up = min(stages - stage - 1, microbatches)
        order = [(FORWARD, j) for j in range(warm_up)]
        for j in range(microbatches - warm_up):
            order += [(FORWARD, warm_up + j), (BACKWARD, j)]
        orders.append(order + [(BACKWARD, j) for j in range(microbatches - warm_up, microbatches)])
    return _schedule("1F1B", orders, microbatches)


def _schedule(name: str, orders: Sequence[Sequence[tuple[str, int]]], microbatches: int) -> Schedule:
    """Run each stage's passes (kind, microbatch) in the given order, each as early as possible.

    Each stage advances until its next pass has to wait, in turn, until all passes are done.
    """
    stages = len(orders)
    done: list[dict[Task, Slot]] = [{} for _ in orders]
    while any(len(slots) < len(order) for slots, order in zip(done, orders, strict=True)):
        for stage, (slots, order) in enumerate(zip(done, orders, strict=True)):
            free = max((slot.end for slot in slots.values()), default=0)
            for kind, microbatch in order[len(slots) :]:
                needed = dependencies((kind, stage, microbatch), stages)
                if any(task not in done[task[1]] for task in needed):
                    break
                start = max([free, *(done[task[1]][task].end for task in needed)])
                slots[kind, stage, microbatch] = Slot(kind, stage, microbatch, start)
                free = slots[kind, stage, microbatch].end
    return Schedule(name, stages, microbatches, tuple(slot for slots in done for slot in slots.values()))


def dependencies(task: Task, stages: int) -> list[Task]:
    """Return the tasks that must end first: those of the adjacent stage, and of a backward pass its forward pass."""
    kind, stage, microbatch = task
    if kind == FORWARD:
        return [(FORWARD, stage - 1, microbatch)] if stage else []
    next_stage = [(BACKWARD, stage + 1, microbatch)] if stage + 1 < stages else []
    return [(FORWARD, stage, microbatch), *next_stage]
