"""Whole graphs on the neural processor: the interpreter's numbers, bit by bit."""

from __future__ import annotations

import tempfile
from pathlib import Path

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.nmp.codegen.generate import fuse_layers, generate, layers_of
from mlhood.compiler.backends.nmp.codegen.search import search
from mlhood.compiler.backends.nmp.machine import default_machine
from mlhood.compiler.backends.nmp.simulator import simulate
from mlhood.compiler.bench.model import NETWORKS
from mlhood.compiler.compile import compile
from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.quantize import Recipe
from mlhood.errors import CompilerError
from mlhood.exchange import export


def network_graph(name, element="int8"):
    """The integers of a network with random weights: without the nodes that quantise inputs and dequantise outputs."""
    import torch

    torch.manual_seed(0)
    network = NETWORKS[name]
    inputs = {network.names[0]: np.random.default_rng(0).normal(size=(1, *network.shape)).astype(np.float32)}
    with tempfile.TemporaryDirectory() as folder:
        path = export(network.build().eval(), *inputs.values(), Path(folder) / "model.onnx", input_names=list(inputs))
        recipe = Recipe("power_of_two", element)
        graph = compile(path, quantization=recipe, calibration=[inputs], dims={"batch": 1}, stop_after="quantized")
    for placeholder in list(graph.placeholders.values()):
        (quantize,) = placeholder.users
        integers = graph.placeholder(f"{placeholder.name}_integers", quantize.outputs[0].type)
        graph.replace_all_uses(quantize.outputs[0], integers)
        graph.remove(quantize)
        del graph.placeholders[placeholder.name], graph._values[placeholder.name]
    for output, value in list(graph.outputs.items()):
        graph.replace_all_uses(value, value.producer.inputs[0])
        graph.remove(value.producer)
        assert graph.is_output(graph.outputs[output])
    return graph


def check(graph):
    """Compare a program's outputs with the interpreter's, on random integers; return the program."""
    rng = np.random.default_rng(0)
    inputs = {}
    for name, value in graph.placeholders.items():
        limits = np.iinfo(value.type.element)
        drawn = rng.integers(limits.min, limits.max, value.type.shape, endpoint=True)
        inputs[name] = drawn.astype(value.type.element)
    program = generate(graph)
    got = simulate(program, inputs)
    for name, expected in Interpreter(graph).run(inputs).items():
        assert len(np.unique(expected)) > 4, name
        np.testing.assert_array_equal(got[name], expected, err_msg=name)
    return program


@pytest.mark.parametrize("element", ["int8", "int16"])
def test_lenet(element):
    check(network_graph("lenet", element))


@pytest.mark.exhaustive
@pytest.mark.parametrize(
    ("name", "element"), [("resnet18", "int8"), ("mobilenet_v2", "int8"), ("mobilenet_v2", "int16")]
)
def test_a_whole_network(name, element):
    check(network_graph(name, element))


def test_the_program_is_always_the_same():
    graph = network_graph("lenet")
    program = generate(graph)
    search.cache_clear()
    assert generate(graph) == program


def test_layers_are_fused_along_chains_only():
    graph, machine = network_graph("lenet"), default_machine()
    layers = layers_of(graph)
    fused = fuse_layers(graph, layers, machine)
    assert [node for layer in fused for node in layer.nodes] == [node for layer in layers for node in layer.nodes]
    assert {len(layer.nodes) for layer in fused} == {1, 2}


def test_scratch_tensors_share_memory():
    program = generate(network_graph("lenet"))
    scratch = program.of_kind("scratch")
    end = max(tensor.address + tensor.bytes for tensor in scratch)
    assert end - min(tensor.address for tensor in scratch) < sum(tensor.bytes for tensor in scratch)


def test_weights_of_a_layer_are_loaded_slice_by_slice_from_aligned_addresses():
    program = generate(network_graph("lenet"))
    burst = program.machine.dram.burst_bytes
    packed = [tensor for tensor in program.tensors.values() if tensor.name.endswith(".packed")]
    assert len(packed) == 5
    assert not any(tensor.address % burst for tensor in packed)


def test_an_unsupported_node_is_named():
    graph = Graph()
    x = graph.placeholder("x", TensorType("float32", (4,)))
    graph.output(graph.add(Relu(), x, name="gate").outputs[0])
    with pytest.raises(CompilerError, match=r"(?s)no instruction.*gate"):
        generate(graph)
