"""Edits that passes are made of: replace, rename, copy, outputs."""

import numpy as np
import pytest

from mlhood.compiler.hir import Graph, Quantization, verify
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
from mlhood.compiler.operators.shape import Reshape
from mlhood.errors import CompilerError
from tests.compiler.passes.building import Build, Sigmoid, Tanh, built, kinds


def diamond() -> Graph:
    b = Build()
    x = b(Relu(), b.x("n", 4), name="relu")
    y = b(Add(), b(Tanh(), x, name="left"), b(Sigmoid(), x, name="right"), name="sum")
    b.graph.output(y, "y")
    b.graph.output(x)
    return b.graph


def test_a_node_is_replaced_under_its_names():
    graph = diamond()
    node = graph.replace(graph.nodes["left"], Relu(), graph.value("x"))
    verify(graph)
    assert (node.name, node.outputs[0].name) == ("left", "left")
    assert graph.nodes["sum"].inputs[0] is node.outputs[0]
    assert graph.value("relu").users == {graph.nodes["right"]: None}


def test_an_output_is_replaced_under_its_name():
    graph = diamond()
    graph.replace(graph.nodes["sum"], Tanh(), graph.value("x"))
    verify(graph)
    assert graph.outputs["y"] is graph.nodes["sum"].outputs[0]


@pytest.mark.parametrize("operator", [Reshape((-1, 2)), Reshape((-1, 5))], ids=["other type", "no type"])
def test_a_replacement_of_another_type_leaves_the_graph_as_it_was(operator):
    graph = diamond()
    text = to_text(graph)
    with pytest.raises(CompilerError):
        graph.replace(graph.nodes["left"], operator, graph.value("x"))
    verify(graph)
    assert to_text(graph) == text


def test_a_node_takes_another_name_or_the_next_free_one():
    graph = diamond()
    graph.rename_node(graph.nodes["left"], "before")
    graph.rename_node(graph.nodes["right"], "before")
    graph.rename_node(graph.nodes["sum"], "sum")
    verify(graph)
    assert set(graph.nodes) == {"relu", "before", "before_1", "sum"}


def test_a_copy_has_the_same_names_and_is_a_graph_of_its_own():
    b = Build()
    pool = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
    most, where = b.graph.add(pool, b.x("n", 1, 4, 4), name="pool", outputs=["most", "where"]).outputs
    b.graph.output(most, "y")
    b.graph.output(where)
    b.graph.output(b.graph.constant("q", np.arange(3, dtype=np.int8), Quantization((0.5,), (0,))))
    copy = b.graph.copy()
    verify(copy)
    assert to_text(copy) == to_text(b.graph)
    assert copy.constants["q"].data.base is b.graph.constants["q"].data.base
    copy.replace_all_uses(copy.value("most"), copy.add(Relu(), copy.value("most")).outputs[0])
    assert kinds(b.graph) == ["MaxPool"]


def test_a_copy_can_have_static_axes():
    graph = built(lambda b: b(Relu(), b(Relu(), b.x("n", 2, "h"))))
    copy = graph.copy({"n": 3})
    verify(copy)
    assert [value.type.shape for value in copy.values()] == [(3, 2, "h")] * 3
    assert graph.outputs["y"].type.shape == ("n", 2, "h")


def test_a_copy_of_a_long_chain():
    b = Build()
    x = b.x(2)
    for _ in range(3000):
        x = b(Relu(), x)
    b.graph.output(x)
    assert to_text(b.graph.copy()) == to_text(b.graph)


def test_a_graph_knows_its_outputs():
    graph = diamond()
    assert graph.is_output(graph.value("relu"))
    assert not graph.is_output(graph.value("left"))
    graph.replace_all_uses(graph.value("relu"), graph.value("x"))
    assert graph.outputs["relu"] is graph.value("x")
    assert graph.is_output(graph.value("x"))
    assert not graph.is_output(graph.value("relu"))
    graph.output(graph.value("left"), "y")
    assert graph.is_output(graph.value("left"))
    assert not graph.is_output(graph.value("sum"))


def test_one_value_may_be_several_outputs():
    graph = diamond()
    graph.output(graph.value("relu"), "again")
    graph.replace_all_uses(graph.value("relu"), graph.value("left"))
    assert graph.outputs["relu"] is graph.outputs["again"] is graph.value("left")


def test_an_output_that_the_graph_does_not_know_of_is_found():
    graph = diamond()
    graph.outputs["late"] = graph.value("left")
    with pytest.raises(CompilerError, match=r"Graph\.output"):
        verify(graph)


def test_a_node_is_put_behind_a_value():
    graph = diamond()
    relu = graph.value("relu")
    behind = graph.add(Relu(), relu, name="behind").outputs[0]
    graph.replace_all_uses(relu, behind)
    verify(graph)
    assert [node.name for node in relu.users] == ["behind"]
    assert graph.outputs["relu"] is behind


def test_what_has_gone_cannot_be_taken_out_again():
    graph = diamond()
    first, second = (graph.add(Relu(), graph.value("x"), name="late") for _ in range(2))
    graph.remove(first)
    graph.rename_node(second, "late")
    with pytest.raises(CompilerError, match="not in the graph"):
        graph.remove(first)
    gone = graph.constant("c", np.zeros(1))
    graph.remove_constant(gone)
    heir = graph.constant("c", np.ones(1))
    with pytest.raises(CompilerError, match="not in the graph"):
        graph.remove_constant(gone)
    assert graph.constants == {"c": heir}


@pytest.mark.parametrize("position", [-1, 1])
def test_a_node_has_no_input_there(position):
    graph = diamond()
    with pytest.raises(CompilerError, match="input position is out of range"):
        graph.replace_input(graph.nodes["left"], position, graph.value("x"))
