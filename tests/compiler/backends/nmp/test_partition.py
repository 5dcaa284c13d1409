"""The cut over CPU and neural processor: of least cost, in parts without a cycle, drawn."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.backends.nmp.partition import CPU, DEVICES, NMP, Dispatch, Host, assign
from mlhood.compiler.backends.nmp.partition_drawing import draw_partition
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.types import TensorType
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu

HOST = Host(link_bytes_per_second=1e6, link_seconds=1e-5)


@st.composite
def graphs(draw):
    """A graph of up to nine nodes of one or two inputs, some of whose values are outputs."""
    graph = Graph("random")
    values = [graph.placeholder(f"x{i}", TensorType("float32", (draw(st.integers(1, 50)),))) for i in range(2)]
    for i in range(draw(st.integers(1, 9))):
        a = draw(st.sampled_from(values))
        same = [value for value in values if value.type == a.type]
        inputs = [a, draw(st.sampled_from(same))] if draw(st.booleans()) else [a]
        node = graph.add(Add() if len(inputs) == 2 else Relu(), *inputs, name=f"n{i}")
        values.append(node.outputs[0])
    for value in values[2:]:
        if not value.users or draw(st.booleans()):
            graph.output(value)
    return graph


def random_dispatch(graph: Graph, seed: int):
    rng = np.random.default_rng(seed)
    dispatches = {}
    for node in graph.topological():
        seconds = {CPU: float(rng.integers(0, 200)) * 1e-6}
        if rng.random() < 0.8:
            seconds[NMP] = float(rng.integers(0, 200)) * 1e-6
        dispatches[node] = Dispatch(seconds, dict.fromkeys(seconds, "kernel"))
    return dispatches


def cost(graph, dispatches, devices):
    """The seconds of an assignment: of its nodes, and of the values that cross, which go there once."""
    total = sum(dispatches[node].seconds[device] for node, device in devices.items())
    for value in graph.values():
        readers = {devices[node] for node in value.users} | ({CPU} if graph.is_output(value) else set())
        if readers - {devices.get(value.producer, CPU)}:
            total += HOST.link_seconds + 4 * value.type.size / HOST.link_bytes_per_second
    return total


@settings(max_examples=60)
@given(graphs(), st.integers(0, 2**31))
def test_no_assignment_costs_less(graph, seed):
    dispatches = random_dispatch(graph, seed)
    cut = assign(graph, dispatches, HOST)
    nodes = graph.topological()
    costs = [
        cost(graph, dispatches, dict(zip(nodes, devices, strict=True)))
        for devices in product(DEVICES, repeat=len(nodes))
        if all(device in dispatches[node].seconds for node, device in zip(nodes, devices, strict=True))
    ]
    assert cost(graph, dispatches, cut.devices) == pytest.approx(min(costs), abs=1e-10)


@settings(max_examples=60)
@given(graphs(), st.integers(0, 2**31))
def test_parts_run_one_after_another(graph, seed):
    dispatches = random_dispatch(graph, seed)
    cut = assign(graph, dispatches, HOST)
    ready = set(graph.placeholders.values())
    for device, nodes in cut.segments():
        assert {cut.devices[node] for node in nodes} == {device}
        for node in nodes:  # within a part, the graph's order
            assert set(node.inputs) <= ready
            ready |= set(node.outputs)
    assert set(graph.outputs.values()) <= ready
    assert sum(len(nodes) for _, nodes in cut.segments()) == len(graph.nodes)


def chain(*sizes: int) -> Graph:
    graph = Graph("chain")
    value = graph.placeholder("x", TensorType("float32", (sizes[0],)))
    for i in range(len(sizes)):
        value = graph.add(Relu(), value, name=f"n{i}").outputs[0]
    graph.output(value, "y")
    return graph


def test_a_node_that_gains_less_than_the_transfers_stays_on_the_cpu():
    graph = chain(1)
    node = graph.nodes["n0"]
    for gain, device in ((3e-5, NMP), (1e-5, CPU)):  # two transfers of about 1.4e-5 each
        told = Dispatch({CPU: 1e-5 + gain, NMP: 1e-5 - gain / 2 if gain < 2e-5 else 0.0}, {CPU: "", NMP: ""})
        cut = assign(graph, {node: told}, HOST)
        assert cut.devices[node] == device


def test_a_value_with_several_readers_crosses_once():
    graph = Graph("fan")
    x = graph.placeholder("x", TensorType("float32", (4,)))
    for i in range(3):
        graph.output(graph.add(Relu(), x, name=f"n{i}").outputs[0])
    told = {node: Dispatch({CPU: 1.0, NMP: 0.0}, {CPU: "", NMP: ""}) for node in graph.topological()}
    cut = assign(graph, told, HOST)
    assert [value.name for value, (source, _) in cut.transfers().items() if source == CPU] == ["x"]
    assert cost(graph, told, cut.devices) == pytest.approx(4 * (1e-5 + 16e-6))


def test_the_drawing_tells_the_devices_apart_without_colour(tmp_path):
    graph = chain(1, 1)
    told = {
        node: Dispatch({CPU: 1.0, NMP: 0.0} if node.name == "n0" else {CPU: 0.0}, {CPU: "", NMP: ""})
        for node in graph.topological()
    }
    cut = assign(graph, told, HOST)
    draw_partition(cut, tmp_path / "cut.svg")
    text = (tmp_path / "cut.svg").read_text(encoding="utf-8")
    for words in ("neural processor", "cpu → nmp: 4 bytes", "nmp → cpu: 4 bytes"):
        assert words in text
