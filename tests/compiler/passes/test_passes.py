"""All passes together: models, termination, order, history, and conventions."""

import inspect
import re
import sys

import numpy as np
import pytest
import torch

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.lir.passes import PASSES as PROGRAM_PASSES
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.arithmetic import Add, Mul
from mlhood.compiler.operators.cast import Identity
from mlhood.compiler.operators.elementwise import Clip, LeakyRelu, Relu
from mlhood.compiler.operators.movement import Transpose
from mlhood.compiler.operators.normalization import BatchNormalization
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.shape import Reshape
from mlhood.compiler.passes import PASSES, optimize
from mlhood.errors import CompilerError
from mlhood.exchange import export
from tests.compiler.passes.building import Build, Sigmoid, Tanh, built, check_same, conv, kinds

LONG = 2_500


# -- models


@pytest.fixture(scope="module")
def resnet(resnet18_bn_onnx):
    return import_model(resnet18_bn_onnx)


def test_resnet_is_reduced_to_its_convolutions(resnet):
    optimized = optimize(resnet, check=True)
    assert kinds(optimized) == ["Conv", "MaxPool", *["Conv"] * 19, "GlobalAveragePool", "Reshape", "FullyConnected"]
    check_same(resnet, optimized, rtol=1e-3, atol=1e-4)


def test_transposes_of_tf2onnx_are_removed(tf_lenet):
    graph = import_model(tf_lenet)
    optimized = optimize(graph, check=True)
    dense = ["FullyConnected"] * 3
    assert kinds(optimized) == ["Reshape", "Conv", "MaxPool", "Conv", "MaxPool", "Flatten", *dense]
    check_same(graph, optimized)


def test_lenet_as_text(golden, lenet_bn, tmp_path):
    """The text before and after; without the values of constants, which depend on the machine."""
    kept = export(lenet_bn, torch.zeros(1, 1, 32, 32), tmp_path / "kept.onnx", keep_batchnorm=True)
    before = import_model(kept)
    texts = [to_text(before), to_text(optimize(before))]
    text = "\n".join(line.split(" = [")[0].split(" = sha256")[0] for text in texts for line in text.splitlines())
    golden("compiler/golden/passes/lenet_bn.txt", text + "\n")


# -- termination


@pytest.mark.parametrize("name", PASSES)
def test_each_pass_returns_a_valid_graph_and_is_idempotent(resnet, name):
    once = optimize(resnet, [name], check=True)
    assert to_text(optimize(once, [name])) == to_text(once)


def test_two_passes_that_undo_each_other_are_reported(monkeypatch):
    def swap(source, target):
        def run(graph):
            node = graph.nodes["node"]
            if not isinstance(node.operator, source):
                return False
            graph.replace(node, target(), node.inputs[0])
            return True

        return run

    monkeypatch.setitem(PASSES, "to_tanh", swap(Sigmoid, Tanh))
    monkeypatch.setitem(PASSES, "to_sigmoid", swap(Tanh, Sigmoid))
    graph = built(lambda b: b(Tanh(), b.x(2), name="node"))
    with pytest.raises(CompilerError, match="do not reach a fixed point") as caught:
        optimize(graph)
    assert "to_tanh, to_sigmoid" in str(caught.value)


def test_the_number_of_rounds_is_unlimited_while_the_graph_shrinks(monkeypatch):
    def remove_one(graph):
        node = next((node for node in graph.topological() if isinstance(node.operator, Tanh)), None)
        if node is not None:
            graph.replace_all_uses(node.outputs[0], node.inputs[0])
            graph.remove(node)
        return node is not None

    monkeypatch.setitem(PASSES, "remove_one", remove_one)
    graph = built(lambda b: [x := b.x(2), *(x := b(Tanh(), x) for _ in range(200))][-1])
    assert kinds(optimize(graph, ["remove_one"])) == []


def test_an_invalid_graph_is_detected_after_the_pass(monkeypatch):
    def corrupt(graph):
        graph.nodes["tanh"].outputs[0].type = TensorType("float32", (3,))
        return True

    monkeypatch.setitem(PASSES, "corrupt", corrupt)
    with pytest.raises(CompilerError, match="its operator infers"):
        optimize(built(lambda b: b(Tanh(), b.x(2))), ["corrupt"], check=True)


# -- long graphs


def long_graph(kind: str) -> Graph:
    b = Build()
    x = b.x("n", 2, 4, 4)
    w, c = b.constant(np.ones((2, 2, 1, 1), np.float32)), b.constant(np.ones((1, 2, 1, 1), np.float32))
    ones = [b.constant(np.ones(2, np.float32), "ones")] * 4
    steps = {
        "relu": [(Relu(),)],
        "add": [(Add(), c)],
        "convolution": [(conv(), w), (BatchNormalization(), *ones), (Relu(),), (Add(), c), (Identity(),)],
        "chain after a convolution": [(Mul(), c), (BatchNormalization(), *ones)],
        "transpose": [(Transpose((0, 2, 3, 1)),)],
        "sinking": [(Relu(),), (Tanh(),)],
        "reshape": [(Reshape((-1, 4)),), (Reshape((-1, 8)),)],
        "clip": [(Clip(0.0, 3.0),), (Clip(-1.0, 2.0),)],
        "pool": [(MaxPool((2, 2), (1, 1), (0, 0, 1, 1), (1, 1)),), (Relu(),)],
        "slope": [(LeakyRelu(0.5),)],
    }[kind]
    if kind == "sinking":
        x = b(Transpose((0, 2, 3, 1)), x)
    if kind.startswith("chain"):
        x = b(conv(), x, w)
    for i in range(LONG):
        operator, *operands = steps[i % len(steps)]
        x = b(operator, x, *operands)
    b.graph.output(x)
    return b.graph


LENGTHS = {"relu": 1, "add": LONG, "convolution": 2 * LONG // 5, "chain after a convolution": 1, "transpose": 1}
LENGTHS |= {"sinking": LONG + 1, "reshape": 1, "clip": 1, "pool": LONG // 2 + 1, "slope": LONG}


@pytest.mark.parametrize("kind", LENGTHS)
def test_a_long_chain_takes_a_few_rounds_and_no_recursion(kind):
    graph = long_graph(kind)
    steps: list[str] = []
    limit = sys.getrecursionlimit()
    assert limit < LONG
    assert len(optimize(graph, observe=lambda name, _: steps.append(name)).nodes) == LENGTHS[kind]
    assert len(steps) <= 8


def test_many_outputs():
    def make(b):
        x, values = b.x(2), []
        for i in range(LONG):
            x = b([Identity(), Tanh(), Sigmoid()][i % 3], x)
            values.append(x)
        return tuple(values)

    graph = optimize(built(make))
    assert len(graph.outputs) == LONG
    assert set(kinds(graph)) == {"Tanh", "Sigmoid"}


# -- arguments


def test_optimize_returns_a_copy():
    graph = built(lambda b: b(Relu(), b(Identity(), b.x(2))))
    text = to_text(graph)
    optimized = optimize(graph)
    assert to_text(graph) == text
    assert kinds(optimized) == ["Relu"]


def test_selected_passes_run_in_the_given_order():
    graph = built(lambda b: b(Relu(), b(Identity(), b.conv(b.x("n", 1, 2, 2)))))
    changes = []
    optimize(graph, ["fuse_activation", "remove_no_ops"], lambda name, graph: changes.append((name, len(graph.nodes))))
    assert changes == [("remove_no_ops", 2), ("fuse_activation", 1)]
    assert kinds(optimize(graph, [])) == kinds(graph)


def test_an_unknown_pass_raises():
    with pytest.raises(CompilerError, match="unknown pass") as caught:
        optimize(built(lambda b: b(Tanh(), b.x(2))), ["nonsense"])
    assert "nonsense" in str(caught.value)
    assert "fold_constants" in str(caught.value)


def test_outputs_that_are_inputs_or_constants():
    graph = built(lambda b: (b.x(2), b.constant(np.ones(2, np.float32)), b(Identity(), b.graph.placeholders["x"])))
    optimized = optimize(graph, check=True)
    assert {name: value.name for name, value in optimized.outputs.items()} == {"y": "x", "y1": "c", "y2": "x"}


# -- conventions


@pytest.mark.parametrize("run", [*PASSES.values(), *PROGRAM_PASSES.values()], ids=lambda run: run.__name__)
def test_a_pass_states_its_rules_by_number(run):
    assert re.search(r"\d\. .*->", inspect.getdoc(run))
