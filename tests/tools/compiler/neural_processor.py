"""What the search for slices gains on the neural processor: cycles per layer beside a greedy default and lower bounds.

The paper's search gains "up to 21.7 %" over its own heuristic on its own machine (R. Sousa and others, Tensor Slicing
and Optimization for Multicore NPUs, 2023, arXiv:2304.03013). Ours is measured against another default, see
`codegen.search.greedy`, so the two say how much a search can matter, not which search is better.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Iterator
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path
from typing import Any, cast

import numpy as np

from mlhood.compiler.backends.nmp.codegen.convolution import layer_program
from mlhood.compiler.backends.nmp.codegen.generate import generate, layers_of
from mlhood.compiler.backends.nmp.codegen.search import Stages, axes, cycles_of, greedy, groups_of, lower_bound, search
from mlhood.compiler.backends.nmp.codegen.slicing import ORDERS, Slicing, misfits
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import NmpStage, NmpWindow
from mlhood.compiler.bench.model import NETWORKS
from mlhood.compiler.compile import compile as compile_model
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.quantize import Recipe
from mlhood.errors import CompilerError, nearest
from mlhood.exchange import export
from tests.tools.compiler.integer_graph import integer_graph

NAMES = ("lenet", "resnet18", "resnet50", "mobilenet_v2")
ELEMENTS = ("int8", "int16")
PAPER = (
    "ours ignores bursts, so this says as much about it as about the search; the paper's search gains up to 21.7 % "
    "over its own default (arXiv:2304.03013)"
)


@dataclass(frozen=True)
class LayerRow:
    """A layer on its own, for one image.

    Args:
        name: Of its node.
        greedy: Cycles with the greedy slices.
        searched: Cycles with those that the search found.
        bound: Cycles that no program can beat, see `search.lower_bound`.
        bytes: DRAM traffic of the searched slices.
        slicing: The searched slices.
    """

    name: str
    greedy: int
    searched: int
    bound: int
    bytes: int
    slicing: str

    @property
    def gain(self) -> float:
        """Share of the greedy cycles that the search saves."""
        return 1 - self.searched / self.greedy

    def __str__(self) -> str:
        cells = f"{self.greedy:>11,}{self.searched:>11,}{self.gain:>8.1%}{self.bound:>11,}{self.bytes:>12,}"
        return f"{self.name[-28:]:28}{cells}  {self.slicing}"


@dataclass(frozen=True)
class Result:
    """A network.

    Args:
        name: Of the graph.
        layers: Its layers, each on its own.
        fused: Cycles of the whole program, with layers fused where that is faster.
        seconds: To generate that program, with the search for its slices.
    """

    name: str
    layers: tuple[LayerRow, ...]
    fused: int
    seconds: float

    @property
    def total(self) -> LayerRow:
        """The sums over the layers."""
        sums = (sum(getattr(row, name) for row in self.layers) for name in ("greedy", "searched", "bound", "bytes"))
        return LayerRow("all layers, one by one", *sums, slicing="")

    def __str__(self) -> str:
        header = f"{self.name:28}{'greedy':>11}{'searched':>11}{'gain':>8}{'bound':>11}{'bytes':>12}  slices"
        best = max(self.layers, key=lambda row: row.gain)
        total = self.total
        lines = [header, *map(str, self.layers), str(total)]
        lines.append(f"gain of the search: {total.gain:.1%} in all, at most {best.gain:.1%} ({best.name}); {PAPER}")
        saved = 1 - self.fused / total.searched
        lines.append(f"fused where that is faster: {self.fused:,} cycles, {saved:.1%} fewer; {self.seconds:.1f} s")
        return "\n".join(lines)


def network_graph(name: str, element: str = "int8") -> Graph:
    """Return the integer part of a network with random weights, quantised with powers of two, for one image.

    Raises:
        CompilerError: The network or the element type is unknown.
    """
    if name not in NAMES:
        raise CompilerError("unknown network", expected=", ".join(NAMES), got=name, todo=nearest(name, NAMES))
    if element not in ELEMENTS:
        raise CompilerError(
            "unknown element type", expected=", ".join(ELEMENTS), got=element, todo=nearest(element, ELEMENTS)
        )
    import torch

    network = NETWORKS[name]
    torch.manual_seed(0)
    example = np.zeros((1, *network.shape), np.float32)
    batch = np.random.default_rng(0).normal(size=example.shape).astype(np.float32)
    with tempfile.TemporaryDirectory() as folder:
        path = export(network.build().eval(), example, Path(folder) / "model.onnx", input_names=network.names[:1])
        recipe = Recipe("power_of_two", element)
        options: dict[str, Any] = {"quantization": recipe, "calibration": [{network.names[0]: batch}]}
        graph = compile_model(path, **options, dims={"batch": 1}, stop_after="quantized")
    integers = integer_graph(cast(Graph, graph))
    integers.name = name
    return integers


def measure(graph: Graph, machine: Machine) -> Result:
    """Return what the search gains on a network.

    Args:
        graph: A graph of integers.
        machine: The machine.

    Raises:
        CompilerError: The machine cannot run a layer.
    """
    start = time.perf_counter()
    program = generate(graph, machine)
    seconds = time.perf_counter() - start
    rows = [_row(layer.nodes[-1].name, layer.stages, machine) for layer in layers_of(graph)]
    return Result(graph.name, tuple(rows), time_program(program).cycles, seconds)


def _row(name: str, stages: tuple[NmpStage, ...], machine: Machine) -> LayerRow:
    best = search(stages, machine)
    traffic = time_program(layer_program(stages, best.slicing, machine)).bytes
    bound = lower_bound(stages, machine)
    return LayerRow(name, greedy(stages, machine).cycles, best.cycles, bound, traffic, str(best.slicing))


def _convolved(channels: int, filters: int, size: int, kernel: int) -> NmpStage:
    window = NmpWindow((kernel, kernel), pads=(kernel // 2, kernel // 2))
    return NmpStage("conv", 1, channels, size, size, filters, size, size, window, 7, -128, 127)


# Small enough for all slicings to be tried on a machine of one tile.
SMALL = {
    "conv 3x3, 4 to 4 channels, 5x5": (_convolved(4, 4, 5, 3),),
    "conv 1x1, 8 to 8 channels, 4x4": (_convolved(8, 8, 4, 1),),
    "depthwise 3x3, 8 channels, 8x8": (replace(_convolved(8, 8, 8, 3), kind="depthwise"),),
    "depthwise 3x3, 8 channels, 8x8, blobs of 256": (replace(_convolved(8, 8, 8, 3), kind="depthwise"),),
    "dense, 64 to 10": (NmpStage("dense", 1, 64, 1, 1, 10, 1, 1, NmpWindow(), 7, -128, 127),),
}


def small_machine(machine: Machine) -> Machine:
    """Return a machine of one tile with two tilelets and blobs of 128 bytes, on which small layers must be sliced."""
    return replace(machine, name="small", tiles=1, tilelets=2, blob_bytes=128)


def gaps(machine: Machine) -> Iterator[tuple[str, int, int]]:
    """Yield for each small layer its name, the searched cycles, and those of the best of all slicings.

    Args:
        machine: Made smaller by `small_machine`.
    """
    small = small_machine(machine)
    for name, stages in SMALL.items():
        each = replace(small, blob_bytes=256) if "blobs of 256" in name else small
        yield name, search(stages, each).cycles, exhaustive(stages, each)


def exhaustive(stages: Stages, machine: Machine) -> int:
    """Return the cycles of the fastest of all slicings, by the cycle model."""
    return min(cycles_of(stages, slicing, machine) for slicing in _all(stages, machine))


def _all(stages: Stages, machine: Machine) -> Iterator[Slicing]:
    for rows, columns, filters, channels in product(*axes(stages)):
        cut = Slicing(rows, columns, filters, channels)
        for order in ORDERS:
            for tiles, tilelets in groups_of(machine):
                for double in (False, True):
                    slicing = replace(cut, order=order, tiles=tiles, tilelets=tilelets, double_buffered=double)
                    if not misfits(stages, slicing, machine):
                        yield slicing
