"""The graph, its edits and its verification; the garbage collector is disabled while one is built."""

import gc

import numpy as np
import pytest

from mlhood.compiler.hir import Graph, Quantization, TensorType, verify
from mlhood.compiler.hir.lengths import product, quotient
from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.types import broadcast
from mlhood.compiler.operators.elementwise import Relu
from mlhood.errors import CompilerError

IMAGE = TensorType("float32", ("batch", 3))


def chain(length: int = 3) -> Graph:
    graph = Graph("chain")
    value = graph.placeholder("x", IMAGE)
    for _ in range(length):
        value = graph.add(Relu(), value).outputs[0]
    graph.output(value, "y")
    return graph


def test_a_sound_graph_verifies():
    verify(chain())


def test_replacing_all_uses_moves_users_and_outputs():
    graph = chain(2)
    first, second = graph.nodes.values()
    graph.replace_all_uses(second.outputs[0], first.outputs[0])
    graph.remove(second)
    verify(graph)
    assert list(graph.nodes.values()) == [first]
    assert graph.outputs == {"y": first.outputs[0]}


def test_a_node_that_is_read_is_not_removed():
    graph = chain(2)
    for node in graph.nodes.values():
        with pytest.raises(CompilerError, match="whose output is used"):
            graph.remove(node)


def test_nodes_come_after_what_they_read_whatever_the_order_of_edits():
    graph = chain(2)
    first, second = graph.nodes.values()
    between = graph.add(Relu(), first.outputs[0], name="between")
    graph.replace_input(second, 0, between.outputs[0])
    verify(graph)
    assert [node.name for node in graph.topological()] == ["relu", "between", "relu_1"]


def test_a_long_chain_is_no_deeper_than_a_short_one():
    graph = chain(5_000)
    verify(graph)
    assert len(graph.topological()) == 5_000


# -- what verification finds


def test_a_cycle_is_found():
    graph = chain(2)
    first, second = graph.nodes.values()
    graph.replace_input(first, 0, second.outputs[0])
    with pytest.raises(CompilerError, match="cycle") as caught:
        verify(graph)
    assert "node 'relu" in str(caught.value)


def break_type(graph):
    graph.nodes["relu_1"].outputs[0].type = TensorType("float32", ("batch", 4))


def break_users(graph):
    graph.nodes["relu"].outputs[0].users.clear()


def break_producer(graph):
    graph.nodes["relu_1"].outputs[0].producer = graph.nodes["relu"]


def break_arity(graph):
    graph.nodes["relu_1"].inputs = ()
    graph.nodes["relu"].outputs[0].users.clear()


def break_membership(graph):
    graph.replace_input(graph.nodes["relu_1"], 0, Graph().placeholder("stranger", IMAGE))


def break_node_name(graph):
    graph.nodes["relu_1"].name = "other"


@pytest.mark.parametrize(
    ("harm", "says"),
    [
        (break_type, "node 'relu_1' (Relu)"),
        (break_users, "does not list it as a user"),
        (break_producer, "producer"),
        (break_arity, "wrong number of inputs"),
        (break_membership, "not in the graph"),
        (break_node_name, "registered under the name 'relu_1'"),
        (lambda graph: graph.outputs.clear(), "no output"),
        (lambda graph: graph.placeholders.update(c=graph.constant("c", np.zeros(1))), "'c' as a placeholder"),
    ],
)
def test_a_broken_rule_is_found(harm, says):
    graph = chain()
    harm(graph)
    with pytest.raises(CompilerError) as caught:
        verify(graph)
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("type", "says"),
    [
        (TensorType("float24", (1,)), "unknown element type"),
        (TensorType("float32", (-1,)), "cannot have length -1"),
        (TensorType("float32", ("",)), "a number or a name"),
        (TensorType("float32", (1,), Quantization((1.0,), (0,))), "only integers"),
        (TensorType("int8", (1,), Quantization((0.0,), (0,))), "not positive"),
        (TensorType("int8", (1,), Quantization((1.0,), (128,))), "offset 128 is out of the range of int8"),
        (TensorType("int8", (1,), Quantization((1.0,), (0.5,))), "offset 0.5 is out of the range"),
        (TensorType("int8", (2,), Quantization((1.0,), (0,), 0)), "1 scales"),
        (TensorType("int8", (2,), Quantization((1.0, 1.0), (0, 0), 1)), "axis 1 of 1"),
    ],
)
def test_a_type_that_is_not_sound_is_found(type, says):
    graph = chain()
    graph.placeholder("bad", type)
    with pytest.raises(CompilerError, match="placeholder 'bad'") as caught:
        verify(graph)
    assert says in str(caught.value)


def test_a_constant_cannot_be_written_to():
    constant = Graph().constant("w", np.zeros(3, np.float32))
    with pytest.raises(ValueError, match="read-only"):
        constant.data[0] = 1


# -- lengths of axes


def test_products_of_named_axes():
    assert quotient((2, "n", 3), ("n",)) == 6
    assert quotient((product((6, "n")),), (2,)) == "3*n"
    assert quotient((5,), (2,)) is None
    assert quotient((6,), ("n",)) is None
    assert product(("n", 0)) == 0


def test_broadcasting():
    assert broadcast((3, 1), ("batch", 1, 4)) == ("batch", 3, 4)
    assert broadcast(("n",), (5,)) == (5,)
    with pytest.raises(CompilerError, match="broadcast"):
        broadcast((3,), (4,))
    assert broadcast(("n", 1), ("m", 4)) == ("broadcast(m, n)", 4)


@pytest.mark.parametrize("enabled", [True, False])
def test_the_previous_state_is_restored(enabled):
    (gc.enable if enabled else gc.disable)()
    try:
        with gc_paused():
            assert not gc.isenabled()
            with gc_paused():
                assert not gc.isenabled()
            assert not gc.isenabled()
        assert gc.isenabled() == enabled
    finally:
        gc.enable()


def test_an_error_restores_it_too():
    with pytest.raises(ValueError, match="inside"), gc_paused():
        raise ValueError("inside")
    assert gc.isenabled()
