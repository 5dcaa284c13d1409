"""What pruning and distillation save: LeNet on the digits, made smaller in several ways, on the CPU and the NMP.

All are quantised to int8 with powers of two, and judged as the integers that run: accuracy on digits that no training
has seen, bytes of the weights, cycles and traffic by the neural processor's cycle model, time on the CPU. The weights
of every network are trained for the same number of epochs: a teacher's, and as many again of what is left of them; or
twice as many from random ones.
"""

from __future__ import annotations

import math
import statistics
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, cast

import numpy as np

from mlhood.compiler.backends.nmp.codegen.generate import generate
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.integer_graph import integer_graph
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.compile import Executable
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.quantize import Recipe
from mlhood.compiler.quantize.report import constant_bytes
from mlhood.errors import CompilerError
from mlhood.exchange import export
from mlhood.measure import Ratio, compare
from mlhood.models import Digits

if TYPE_CHECKING:
    from mlhood.models.networks import LeNet

RECIPE = Recipe("power_of_two", "int8")
DENSE, MAGNITUDE, STRUCTURED, DISTILLED, SCRATCH = "dense", "magnitude", "structured", "distilled", "from scratch"
SPARSITIES = (0.8, 0.95, 0.99)
SHARES = (0.5, 0.25, 0.125, 0.0625)
WIDTH = 4
CALIBRATION_IMAGES = 256
TIMED_IMAGES = 32
CPU = "cpu"


@dataclass(frozen=True)
class Row:
    """A network, made smaller in one way.

    Args:
        method: One of `DENSE`, `MAGNITUDE`, `STRUCTURED`, `DISTILLED` and `SCRATCH`.
        level: The sparsity, or the share of filters and units that are left; 1 of the dense network.
        accuracies: Of the int8 network on unseen digits, by seed.
        dense_bytes: Of weights and biases as they run, in int8 and int32.
        stored_bytes: Of the first seed's, each weight tensor as it is or without zeros, see `stored_bytes`.
        cycles: Of one image on the neural processor.
        traffic: Bytes between its memory and DRAM, for one image.
        time: On the CPU, relative to the dense network; None if not measured.
    """

    method: str
    level: float
    accuracies: tuple[float, ...]
    dense_bytes: int
    stored_bytes: int
    cycles: int
    traffic: int
    time: Ratio | None = None

    @property
    def name(self) -> str:
        """Method and level in words."""
        if self.method == DENSE:
            return DENSE
        return f"{self.method}, {100 * self.level:g} % of the {'weights zero' if self.method == MAGNITUDE else 'units'}"

    @property
    def accuracy(self) -> float:
        """Mean over the seeds."""
        return statistics.fmean(self.accuracies)

    @property
    def relative_time(self) -> float:
        """Time on the CPU relative to the dense network; NaN if not measured."""
        if self.method == DENSE:
            return 1.0
        return math.nan if self.time is None else self.time.value

    def as_dict(self) -> dict[str, Any]:
        """Return everything as JSON can hold it."""
        time = None if self.time is None else [self.time.value, self.time.low, self.time.high]
        return {**vars(self), "name": self.name, "accuracy": self.accuracy, "time": time}

    def __str__(self) -> str:
        low, high = min(self.accuracies), max(self.accuracies)
        accuracy = f"{self.accuracy:>8.1%} [{low:.1%}, {high:.1%}]"
        sizes = f"{self.dense_bytes:>10,}{self.stored_bytes:>10,}{self.cycles:>10,}{self.traffic:>11,}"
        return f"{self.name:36}{accuracy:<26}{sizes}   {'' if self.time is None else self.time}".rstrip()


HEADER = f"{'':36}{'accuracy [least, most]':<26}{'bytes':>10}{'stored':>10}{'cycles':>10}{'traffic':>11}   CPU time"

# Where a network costs what, for the Pareto frontier: name of an attribute of `Row`, and what it means.
COSTS = {
    "stored_bytes": "bytes of the stored weights",
    "cycles": "cycles on the NMP",
    "relative_time": "relative time on the CPU",
}


def measure(
    data: Digits,
    machine: Machine,
    *,
    seeds: int = 3,
    epochs: int = 15,
    width: int = WIDTH,
    rounds: int = 21,
    report: Callable[[str], object] = lambda _: None,
) -> list[Row]:
    """Train, prune, distil, quantise and measure.

    Args:
        data: The digits.
        machine: The neural processor.
        seeds: Number of teachers, each with other weights and another order of the images.
        epochs: Of each teacher, and of each network that is made of it.
        width: Of the teacher: its layers have as many times the filters and units of LeNet-5.
        rounds: Rounds of timing on the CPU, at least 21; 0 leaves it out.
        report: Told of each seed when its networks are trained.

    Returns:
        The dense network first.

    Raises:
        CompilerError: Seeds or epochs are less than 1.
        MeasureError: There are too few rounds.
    """
    if seeds < 1 or epochs < 1:
        raise CompilerError("invalid numbers", expected="one or more seeds and epochs", got=f"{seeds} and {epochs}")
    rows: dict[tuple[str, float], Row] = {}
    executables: dict[tuple[str, float], Executable] = {}
    costs = _Costs(machine)
    for seed in range(seeds):
        for key, model in networks(data, seed, epochs, width):
            executable, graph = quantized(model, data)
            correct = accuracy(executable, data)
            if key in rows:
                rows[key] = replace(rows[key], accuracies=(*rows[key].accuracies, correct))
                continue
            executables[key] = executable
            sizes = (constant_bytes(graph), stored_bytes(graph))
            rows[key] = Row(*key, (correct,), *sizes, *costs.of(model.widths, graph))
        report(f"trained the networks of seed {seed}")
    return list(_timed(rows, executables, data, rounds) if rounds else rows.values())


def networks(data: Digits, seed: int, epochs: int, width: int) -> Iterator[tuple[tuple[str, float], LeNet]]:
    """Yield method, level and network of everything that is made of one teacher; the teacher first.

    Args:
        data: The digits.
        seed: Of weights and order.
        epochs: See `measure`.
        width: See `measure`.
    """
    from mlhood.models import distillation, narrow, sparse, train
    from mlhood.models.compression import scaled
    from mlhood.models.networks import WIDTHS

    fit = partial(train, images=data.train_images, labels=data.train_labels, seed=seed)
    teacher = _seeded(scaled(WIDTHS, width), seed)
    fit(teacher, epochs=epochs)
    yield (DENSE, 1.0), _tuned(teacher, fit, epochs)
    for sparsity in SPARSITIES:
        model = _copied(teacher)
        with sparse(model, sparsity):
            fit(model, epochs=epochs)
        yield (MAGNITUDE, sparsity), model
    for share in SHARES:
        yield (STRUCTURED, share), _tuned(narrow(teacher, share), fit, epochs)
        student = _seeded(scaled(teacher.widths, share), seed)
        alone = _copied(student)
        fit(student, epochs=2 * epochs, loss=distillation(teacher))
        yield (DISTILLED, share), student
        fit(alone, epochs=2 * epochs)
        yield (SCRATCH, share), alone


def quantized(model: LeNet, data: Digits) -> tuple[Executable, Graph]:
    """Return a network as int8 code for the CPU with any batch, and as the quantised graph for one image.

    Args:
        model: Trained.
        data: Of whose training images some are for calibration.
    """
    with tempfile.TemporaryDirectory() as folder:
        path = export(model.eval(), data.test_images[:1], Path(folder) / "model.onnx", input_names=("image",))
        calibration = [{"image": data.train_images[:CALIBRATION_IMAGES]}]
        executable = compile_model(path, CPU, RECIPE, calibration=calibration)
        graph = compile_model(path, CPU, RECIPE, "quantized", calibration=calibration, dims={"batch": 1})
    return cast(Executable, executable), cast(Graph, graph)


def accuracy(executable: Executable, data: Digits) -> float:
    """Return the share of the unseen digits that a compiled network classifies correctly."""
    (logits,) = executable.run(image=data.test_images).values()
    return float((logits.argmax(axis=1) == data.test_labels).mean())


def stored_bytes(graph: Graph) -> int:
    """Return the size of a graph's constants if zeros among the weights are not stored.

    Each int8 tensor is stored as it is, or, if that is shorter, as a mask of one bit per weight and the weights that
    are not zero, which is how NVDLA compresses weights (NVIDIA Deep Learning Accelerator, "In-memory data formats",
    sparse compression). The code that we generate reads weights as they are: compression saves space, not cycles.
    """
    return sum(_stored(constant.data) for constant in graph.constants.values())


def _stored(data: np.ndarray) -> int:
    if data.dtype != np.int8:
        return data.nbytes
    return min(data.nbytes, math.ceil(data.size / 8) + int(np.count_nonzero(data)))


def frontier(rows: Sequence[Row], cost: str) -> list[Row]:
    """Return the rows that are Pareto-optimal: none other is as accurate and cheaper, or as cheap and more accurate.

    Args:
        rows: Networks.
        cost: Attribute of a row, the less the better, such as "cycles".

    Returns:
        By ascending cost; equals stay together.
    """

    def dominates(a: Row, b: Row) -> bool:
        pairs = ((getattr(a, cost), -a.accuracy), (getattr(b, cost), -b.accuracy))
        return pairs[0] != pairs[1] and all(x <= y for x, y in zip(*pairs, strict=True))

    best = [row for row in rows if not any(dominates(other, row) for other in rows)]
    return sorted(best, key=lambda row: getattr(row, cost))


@dataclass
class _Costs:
    """Cycles and traffic on the neural processor, which depend on the widths only: the code does not look for zeros."""

    machine: Machine
    found: dict[tuple[int, ...], tuple[int, int]] = field(default_factory=dict)

    def of(self, widths: tuple[int, ...], graph: Graph) -> tuple[int, int]:
        if widths not in self.found:
            counts = time_program(generate(integer_graph(graph), self.machine))
            self.found[widths] = counts.cycles, counts.bytes
        return self.found[widths]


def _timed(
    rows: Mapping[tuple[str, float], Row],
    executables: Mapping[tuple[str, float], Executable],
    data: Digits,
    rounds: int,
) -> Iterator[Row]:
    images = data.test_images[:TIMED_IMAGES]
    calls = {rows[key].name: partial(executable.run, image=images) for key, executable in executables.items()}
    # different networks compute different logits
    result = compare(calls, baseline=DENSE, rounds=rounds, threads=1, check=False)
    for row in rows.values():
        yield row if row.method == DENSE else replace(row, time=result.ratio(row.name, DENSE))


def _seeded(widths: tuple[int, int, int, int], seed: int) -> LeNet:
    import torch

    from mlhood.models import LeNet

    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        return LeNet(widths=widths)


def _copied(model: LeNet) -> LeNet:
    from copy import deepcopy

    return deepcopy(model)


def _tuned(model: LeNet, fit: Callable[..., object], epochs: int) -> LeNet:
    copied = _copied(model)
    fit(copied, epochs=epochs)
    return copied
