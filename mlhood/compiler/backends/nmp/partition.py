"""Which device computes which node of a graph: a minimum cut between the CPU and the neural processor.

The cost of an assignment is the sum of what each node costs on its device, and of the transfers: a value that is
computed on one device and read on the other crosses once, however many nodes read it there. Inputs and outputs of the
graph are on the CPU. The cut is an assignment of the least cost in this model; it knows nothing of layers that are
fused through blobs, or of devices that work at the same time.

H. Stone, Multiprocessor Scheduling with the Aid of Network Flow Algorithms, IEEE Trans. Software Engineering, 1977.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from itertools import count
from typing import TYPE_CHECKING

from mlhood.compiler.backends.minimum_cut import source_side
from mlhood.compiler.backends.nmp.codegen.search import search
from mlhood.compiler.backends.nmp.machine import Machine
from mlhood.compiler.backends.nmp.stages import images, is_alias, works_of
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.errors import CompilerError

if TYPE_CHECKING:
    import pandas as pd

CPU, NMP = "cpu", "nmp"
DEVICES = (CPU, NMP)
_UNIT = 1e12  # picoseconds: capacities of the flow network are integers


@dataclass(frozen=True)
class Host:
    """The processor beside the neural processor, and the way between them, as numbers for estimates.

    Args:
        macs_per_second: Of its integer kernels.
        bytes_per_second: Of its memory.
        node_seconds: To start a node.
        link_bytes_per_second: Of transfers between the two.
        link_seconds: To start a transfer.
    """

    macs_per_second: float = 50e9
    bytes_per_second: float = 10e9
    node_seconds: float = 2e-6
    link_bytes_per_second: float = 4e9
    link_seconds: float = 5e-6


HOST = Host()


@dataclass(frozen=True)
class Dispatch:
    """Where a node can run, and what that costs.

    Args:
        seconds: Estimated time on each device that can run it.
        kernels: What computes it on each device: instructions of the neural processor, or the CPU's operator.
        reason: Why the neural processor cannot; empty if it can.
    """

    seconds: Mapping[str, float]
    kernels: Mapping[str, str]
    reason: str = ""


@dataclass(frozen=True)
class Partition:
    """An assignment of a graph's nodes to devices.

    Args:
        graph: The graph.
        dispatches: Where each node can run.
        devices: Where each node runs.
    """

    graph: Graph
    dispatches: Mapping[Node, Dispatch] = field(repr=False)
    devices: Mapping[Node, str] = field(repr=False)

    def on(self, device: str) -> list[Node]:
        """Return the nodes of a device, in the graph's order."""
        return [node for node in self.graph.topological() if self.devices[node] == device]

    def segments(self) -> list[tuple[str, list[Node]]]:
        """Return the graph in parts of one device each, in an order in which they can run.

        A node's level is the largest number of changes of device on a path to it from an input. Levels do not decrease
        along a path, and the nodes of a level are all on one device, so a level is a part that waits for earlier ones.
        """
        levels: dict[Node, int] = {}
        parts: dict[int, list[Node]] = {}
        for node in self.graph.topological():
            device, level = self.devices[node], int(self.devices[node] == NMP)
            for value in node.inputs:
                if value is not None and value.producer is not None:
                    before = value.producer
                    level = max(level, levels[before] + int(self.devices[before] != device))
            levels[node] = level
            parts.setdefault(level, []).append(node)
        return [(self.devices[nodes[0]], nodes) for _, nodes in sorted(parts.items())]

    def transfers(self) -> dict[Value, tuple[str, str]]:
        """Return the values that cross, with the devices from and to which they go."""
        found: dict[Value, tuple[str, str]] = {}
        for value, source, readers in _uses(self.graph):
            device = CPU if source is None else self.devices[source]
            readers_on = {CPU if node is None else self.devices[node] for node in readers}
            if others := readers_on - {device}:
                found[value] = device, others.pop()
        return found

    def table(self) -> pd.DataFrame:
        """Return the dispatch table: a row per node with its device, what computes it on each, and the estimates."""
        import pandas as pd

        rows = [
            {
                "operator": node.operator.name,
                "element": node.outputs[0].type.element,
                "device": self.devices[node],
                "on the CPU": dispatch.kernels[CPU],
                "on the NMP": dispatch.kernels.get(NMP, f"no: {dispatch.reason}"),
                "CPU us": 1e6 * dispatch.seconds[CPU],
                "NMP us": 1e6 * dispatch.seconds[NMP] if NMP in dispatch.seconds else float("nan"),
            }
            for node, dispatch in self.dispatches.items()
        ]
        return pd.DataFrame(rows, index=pd.Index([node.name for node in self.dispatches], name="node"))

    def __str__(self) -> str:
        moved = sum(_bytes(value) for value in self.transfers())
        sizes = ", ".join(f"{len(self.on(device))} nodes on {device}" for device in DEVICES)
        parts = len(self.segments())
        return f"{sizes}, in {parts} parts; {len(self.transfers())} transfers of {moved:,} bytes"


def partition(graph: Graph, machine: Machine) -> Partition:
    """Assign each node of a graph without dynamic axes to a device, at the least estimated time."""
    return assign(graph, {node: dispatch_node(node, machine, HOST) for node in graph.topological()}, HOST)


def assign(graph: Graph, dispatches: Mapping[Node, Dispatch], host: Host) -> Partition:
    """Return the partition of least cost, given where each node can run."""
    return Partition(graph, dispatches, _cut(graph, dispatches, host))


def dispatch_node(node: Node, machine: Machine, host: Host) -> Dispatch:
    """Return where a node can run: on the CPU always, on the neural processor if it has instructions and room."""
    seconds, kernels = {CPU: _cpu_seconds(node, host)}, {CPU: node.operator.name}
    try:
        works = works_of(node)
        stages = tuple(work.stage for work in works)
        once = 1 if not stages or stages[0].kind == "dense" else images(node.outputs[0].type)
        cycles = search(stages, machine).cycles * once if stages else 0
    except CompilerError as error:
        return Dispatch(seconds, kernels, error.one_line())
    seconds[NMP] = cycles / machine.clock_hz
    kernels[NMP] = "the same bytes" if is_alias(node) else " + ".join(stage.kind for stage in stages)
    return Dispatch(seconds, kernels)


def _cpu_seconds(node: Node, host: Host) -> float:
    """Return the estimated time of a node on the CPU: by its products, or by its bytes."""
    shapes = [() if value is None else tuple(map(_length, value.type.shape)) for value in node.inputs]
    output = tuple(map(_length, node.outputs[0].type.shape))
    macs = node.operator.macs(shapes, output) or 0
    moved = sum(_bytes(value) for value in {*node.inputs, *node.outputs} if value is not None)
    return host.node_seconds + max(macs / host.macs_per_second, moved / host.bytes_per_second)


def _cut(graph: Graph, dispatches: Mapping[Node, Dispatch], host: Host) -> dict[Node, str]:
    """Return the assignment of the least cost: the CPU is the source of the flow, the neural processor its sink."""
    numbers = count()
    source, sink = next(numbers), next(numbers)
    vertices: dict[Node | None, int] = {None: source}
    edges: dict[tuple[int, int], int] = {}
    never = 1 + sum(_capacity(s) for d in dispatches.values() for s in d.seconds.values())
    never += sum(_capacity(_transfer_seconds(value, host)) for value, _, _ in _uses(graph))
    for node, dispatch in dispatches.items():
        vertex = vertices[node] = next(numbers)
        edges[source, vertex] = _capacity(dispatch.seconds[NMP]) if NMP in dispatch.seconds else never
        edges[vertex, sink] = _capacity(dispatch.seconds[CPU])
    for value, producer, readers in _uses(graph):
        price, start = _capacity(_transfer_seconds(value, host)), vertices[producer]
        there, back = next(numbers), next(numbers)  # on the sink's side, or the source's, if any reader is
        edges[start, there], edges[back, start] = price, price
        for reader in readers:
            edges[there, vertices[reader]] = edges[vertices[reader], back] = never
    on_cpu = source_side(edges, source, sink)
    return {node: CPU if vertices[node] in on_cpu else NMP for node in dispatches}


def _uses(graph: Graph) -> list[tuple[Value, Node | None, list[Node | None]]]:
    """Return each value that is not constant, its producer and its readers; None is the CPU, outside of the graph."""
    found = []
    for value in graph.values():
        readers: list[Node | None] = list(value.users)
        if graph.is_output(value):
            readers.append(None)
        if readers and not isinstance(value, Constant):
            found.append((value, value.producer, readers))
    return found


def _transfer_seconds(value: Value, host: Host) -> float:
    return host.link_seconds + _bytes(value) / host.link_bytes_per_second


def _capacity(seconds: float) -> int:
    return round(seconds * _UNIT)


def _length(axis: int | str) -> int:
    return axis if isinstance(axis, int) else 1


def _bytes(value: Value) -> int:
    size = value.type.dtype.itemsize
    for axis in value.type.shape:
        size *= _length(axis)
    return size
