"""From a graph of integers to a program: layers, their slices, and where tensors lie in DRAM."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field, replace

import numpy as np

from mlhood.compiler.backends.nmp.codegen.emitter import Emitter, PackedWeights
from mlhood.compiler.backends.nmp.codegen.layer import DramView, LayerData, LayerEmitter
from mlhood.compiler.backends.nmp.codegen.search import search
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing
from mlhood.compiler.backends.nmp.isa.instruction import ceil_div
from mlhood.compiler.backends.nmp.machine import Machine, default_machine
from mlhood.compiler.backends.nmp.program import DramTensor, NmpLayer, NmpProgram
from mlhood.compiler.backends.nmp.stages import NmpStage, NmpWork, images, is_alias, works_of
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.operator import locate_error
from mlhood.compiler.hir.values import Constant, Node, Value
from mlhood.compiler.lir.program import Lifetime
from mlhood.compiler.memory.plan import plan
from mlhood.errors import CompilerError

_FUSED = ("max", "mean", "depthwise", "add", "rescale")  # stages that can follow another in the blobs


@dataclass
class GraphLayer:
    """A node, or a chain of nodes that is computed in the blobs.

    Args:
        nodes: The nodes in order.
        works: Their stages with arrays.
        x: What the first stage reads.
    """

    nodes: list[Node]
    works: list[NmpWork]
    x: Value

    @property
    def stages(self) -> tuple[NmpStage, ...]:
        """The stages alone."""
        return tuple(work.stage for work in self.works)

    @property
    def y(self) -> Value:
        """What the last stage writes."""
        return self.nodes[-1].outputs[0]


def generate(graph: Graph, machine: Machine | None = None) -> NmpProgram:
    """Return the program of a graph.

    Layers have the fastest slices that the search finds. The results of a layer stay in the blobs where a following
    layer can use them there, if that is faster.

    Args:
        graph: A verified graph whose nodes the processor supports, see `stages.unsupported`; its placeholders and
            outputs hold integers.
        machine: The machine; the course's by default.

    Raises:
        CompilerError: A node is not supported, or does not fit the machine.
    """
    machine = machine or default_machine()
    layers = fuse_layers(graph, layers_of(graph), machine)
    slicings = [_choose(layer, machine) for layer in layers]
    return _Generator(graph, machine, layers, slicings).program()


def layers_of(graph: Graph) -> list[GraphLayer]:
    """Return a graph's nodes as layers, without those that only reshape.

    Raises:
        CompilerError: A node is not supported.
    """
    layers = []
    for node in graph.topological():
        try:
            works = works_of(node)
        except CompilerError as error:
            raise locate_error(error, node.where) from error
        if works:
            layers.append(GraphLayer([node], list(works), _root(node.inputs[0])))
    return layers


def _root(value: Value | None) -> Value:
    """Return the value whose bytes a value has: through nodes that only reshape."""
    if value is None:
        raise CompilerError("an input is missing")
    while value.producer is not None and is_alias(value.producer) and value.producer.inputs[0] is not None:
        value = value.producer.inputs[0]
    return value


def _choose(layer: GraphLayer, machine: Machine) -> Slicing:
    try:
        return search(layer.stages, machine).slicing
    except CompilerError as error:
        raise locate_error(error, layer.nodes[-1].where) from error


def fuse_layers(graph: Graph, layers: list[GraphLayer], machine: Machine) -> list[GraphLayer]:
    """Return the layers with those fused whose results may stay in the blobs, where that takes fewer cycles."""
    fused: list[GraphLayer] = []
    by_output: dict[Value, int] = {}
    for layer in layers:
        position = by_output.get(layer.x)
        candidate = None if position is None else _fused(graph, fused[position], layer)
        if candidate is not None and position is not None:
            try:
                together = search(candidate.stages, machine).cycles
            except CompilerError:  # too large for the blobs
                together = None
            apart = sum(search(each.stages, machine).cycles for each in (fused[position], layer))
            if together is not None and together < apart:
                # at the later one's place: what it adds may be computed in between
                fused[position] = replace(fused[position], nodes=[])
                layer = candidate
        by_output[layer.y] = len(fused)
        fused.append(layer)
    return [layer for layer in fused if layer.nodes]


def _fused(graph: Graph, first: GraphLayer, second: GraphLayer) -> GraphLayer | None:
    """Return two layers as one, if only the second uses the first's result, channel by channel."""
    y = first.y
    if not first.nodes or len(y.users) != 1 or graph.is_output(y) or second.nodes[0] not in y.users:
        return None
    kinds = [work.stage.kind for work in second.works]
    if any(kind not in _FUSED for kind in kinds) or any(work.stage.kind == "dense" for work in first.works):
        return None
    before, after = first.works[-1].stage, second.works[0].stage
    if (before.filters, before.out_height, before.out_width) != (after.channels, after.height, after.width):
        return None
    if any(work.operand is not None and _root(work.operand) is y for work in second.works):
        return None  # x + x
    return GraphLayer(first.nodes + second.nodes, first.works + second.works, first.x)


@dataclass
class _Generator:
    """Makes the program, once layers and slices are fixed."""

    graph: Graph
    machine: Machine
    layers: list[GraphLayer]
    slicings: list[Slicing]
    tensors: dict[str, DramTensor] = field(default_factory=dict)
    end: int = 0  # of the DRAM in use

    def program(self) -> NmpProgram:
        packed = [
            PackedWeights(layer.stages, slicing, self.machine.dram.burst_bytes)
            for layer, slicing in zip(self.layers, self.slicings, strict=True)
        ]
        self._place_values()
        addresses = [self._add_weights(layer, weights) for layer, weights in zip(self.layers, packed, strict=True)]
        emitter, ranges = Emitter(self.machine), []
        for layer, slicing, weights, address in zip(self.layers, self.slicings, packed, addresses, strict=True):
            first = len(emitter.instructions)
            self._emit(emitter, layer, slicing, weights, address)
            emitter.barrier()
            name = " + ".join(node.name for node in layer.nodes)
            ranges.append(NmpLayer(name, first, len(emitter.instructions), str(slicing)))
        if self.end > self.machine.dram.bytes:
            expected = f"{self.machine.dram.bytes:,} bytes"
            raise CompilerError("the model does not fit the DRAM", expected=expected, got=f"{self.end:,} bytes")
        return NmpProgram(self.graph.name, self.machine, self.tensors, tuple(emitter.instructions), tuple(ranges))

    def _place(self, bytes: int) -> int:
        address, burst = self.end, self.machine.dram.burst_bytes
        self.end = ceil_div(address + bytes, burst) * burst
        return address

    def _add(self, name: str, kind: str, value: Value, address: int, data: np.ndarray | None = None) -> None:
        shape = tuple(int(n) for n in value.type.shape)
        self.tensors[name] = DramTensor(name, kind, value.type.element, shape, address, data)

    def _place_values(self) -> None:
        """Give inputs, outputs, constants that are operands, and what lies between layers an address."""
        self.addresses: dict[Value, int] = {}
        for name, value in self.graph.placeholders.items():
            self.addresses[value] = self._place(_bytes(value))
            self._add(name, "input", value, self.addresses[value])
        for name, value in self.graph.outputs.items():
            root = _root(value)
            if root.producer is None:
                todo = "run the graph on another target"
                raise CompilerError("an output is an input or a constant", where=f"output {name!r}", todo=todo)
            if root not in self.addresses:
                self.addresses[root] = self._place(_bytes(root))
            self._add(name, "output", value, self.addresses[root])
        for value in self._operands():
            if isinstance(value, Constant):
                self.addresses[value] = self._place(_bytes(value))
                self._add(value.name, "constant", value, self.addresses[value], np.ascontiguousarray(value.data))
        self._place_scratch()

    def _operands(self) -> Iterable[Value]:
        for layer in self.layers:
            yield layer.x
            yield from (_root(work.operand) for work in layer.works if work.operand is not None)

    def _place_scratch(self) -> None:
        """Share memory among what lies between layers, by the layers in which it is live."""
        first, last = {}, {}
        for number, layer in enumerate(self.layers):
            first[layer.y] = number
            operands = [_root(work.operand) for work in layer.works if work.operand is not None]
            for value in (layer.x, *operands, layer.y):
                last[value] = number
        values = [value for value in first if value not in self.addresses]
        lifetimes = [Lifetime(value.name, _bytes(value), first[value], last[value]) for value in values]
        arena = plan(lifetimes, self.machine.dram.burst_bytes)
        base = self._place(arena.bytes)
        for value in values:
            self.addresses[value] = base + arena.offsets[value.name]
            self._add(f"{value.name}", "scratch", value, self.addresses[value])

    def _add_weights(self, layer: GraphLayer, packed: PackedWeights) -> int:
        if not packed.bytes:
            return 0
        data, name = packed.pack(layer.works), f"{layer.nodes[0].name}.packed"
        address = self._place(len(data))
        self.tensors[name] = DramTensor(name, "constant", "uint8", data.shape, address, data)
        return address

    def _emit(self, emitter: Emitter, layer: GraphLayer, slicing: Slicing, packed: PackedWeights, weights: int) -> None:
        stages = layer.stages
        count = 1 if stages[0].kind == "dense" else images(layer.nodes[0].outputs[0].type)
        partial: int | None = None
        for n in range(count):
            x = DramView(self._image(layer.x, n, count), stages[0], False)
            y = DramView(self._image(layer.y, n, count), stages[-1], True)
            operands = {
                i: DramView(self._image(_root(work.operand), n, count), work.stage, True)
                for i, work in enumerate(layer.works)
                if work.operand is not None
            }
            each = LayerEmitter(emitter, stages, slicing, packed, LayerData(x, y, operands, weights, partial or 0))
            if each.partial_bytes and partial is None:
                partial = self._place(each.partial_bytes)
                name = f"{layer.nodes[0].name}.accumulators"
                self.tensors[name] = DramTensor(name, "scratch", "int8", (each.partial_bytes,), partial)
                each.data = replace(each.data, partial=partial)
            if n:
                emitter.barrier()
            each.emit()

    def _image(self, value: Value, n: int, count: int) -> int:
        return self.addresses[value] + n * _bytes(value) // count


def _bytes(value: Value) -> int:
    size = value.type.size
    if not isinstance(size, int):
        raise CompilerError("lengths of axes must be known", where=f"value {value.name!r}", got=value.type.shape)
    return size * value.type.dtype.itemsize
