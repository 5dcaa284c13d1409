"""The text form: the same graph, the same text, and back."""

import numpy as np
import pytest

from mlhood.compiler.hir import Graph, Quantization, TensorType, verify
from mlhood.compiler.hir.parse import constants_by_digest, parse
from mlhood.compiler.hir.text import attribute_text, to_text
from mlhood.compiler.operators.elementwise import Relu
from mlhood.errors import CompilerError

TEXT = """\
graph "two"
  placeholder %input:0 : float32[batch, 3, "h+1"]
  placeholder %q : int8[2] quantized(scale=[0.1, 0.25], offset=[0, -3], axis=0)
  constant %"odd name" : int64[2] = [-1, 400]
  constant %scalar : float32[] = [0.5]
  %y : float32[batch, 3, "h+1"] = Relu "relu1" (%input:0)
  %z : float32[batch, 3, "h+1"] = Relu(%y)
  output %y
  output "same" = %z
"""


def test_text_and_graph_go_both_ways():
    graph = parse(TEXT)
    verify(graph)
    assert to_text(graph) == TEXT


def test_long_constants_are_named_by_their_content():
    graph = Graph()
    graph.constant("w", np.arange(9, dtype=np.float32))
    graph.constant("v", np.arange(9, dtype=np.int32))
    graph.output(graph.value("w"))
    text = to_text(graph)
    again = parse(text, constants_by_digest(graph))
    assert to_text(again) == text
    np.testing.assert_array_equal(again.constants["w"].data, np.arange(9))
    with pytest.raises(CompilerError, match="was not given"):
        parse(text)


def test_special_numbers():
    graph = Graph()
    graph.constant("w", np.array([np.inf, -np.inf, np.nan, 1e-45, -0.0], np.float32))
    graph.output(graph.value("w"))
    np.testing.assert_array_equal(parse(to_text(graph)).constants["w"].data, graph.constants["w"].data)


def test_axes_may_be_called_like_anything():
    graph = Graph()
    axes = ("inf", "nan", "true", "none", "quantized", "graph", "1", "a b", "infinite")
    graph.output(graph.placeholder("x", TensorType("float32", axes)))
    again = parse(to_text(graph))
    assert again.placeholders["x"].type.shape == axes
    assert to_text(again) == to_text(graph)


def test_attributes():
    assert attribute_text((1, 2.0, "a", True, None, (3,))) == '[1, 2.0, "a", true, none, [3]]'
    assert attribute_text(Quantization((0.5,), (1,))) == "quantized(scale=[0.5], offset=[1])"


def test_the_order_of_edits_does_not_show():
    graph = Graph("g")
    x = graph.placeholder("x", TensorType("float32", (1,)))
    late = graph.add(Relu(), x, name="late")
    early = graph.add(Relu(), x, name="early")
    graph.replace_input(late, 0, early.outputs[0])
    graph.output(late.outputs[0])
    lines = to_text(graph).splitlines()
    assert [line.split()[0] for line in lines[2:4]] == ["%early", "%late"]
    assert to_text(parse(to_text(graph))) == to_text(graph)


@pytest.mark.parametrize(
    ("line", "says"),
    [
        ("%y : float32[1] = Relu(%x)", "no value with this name"),
        ("%y : float32[2] = Nonsense(%p)", "unknown operator"),
        ("%y : float32[3] = Relu(%p)", "another type"),
        ("%y : float32[2] = Relu(%p) {a=1}", "invalid attributes of the operator"),
        ("%y : float32[2] = Relu(%p", "syntax error"),
        ("%y : float99[2] = Relu(%p)", "unknown element type"),
        ("output %p extra", "the end of the line"),
        ("§", "syntax error"),
        ("constant %c : float32[2] = [1.0]", "the line is invalid"),
        ("placeholder %x : float32[inf]", "the line is invalid"),
        ("%y : float32[2] = Transpose(%p) {permutation=3}", "the line is invalid"),
        ("%a : float32[2], %b : float32[2] = Relu(%p)", "the line is invalid"),
    ],
)
def test_a_text_that_is_wrong_is_refused_with_its_line(line, says):
    with pytest.raises(CompilerError) as caught:
        parse(f'graph "g"\n  placeholder %p : float32[2]\n  {line}\n')
    assert says in str(caught.value)
    assert "line 3" in str(caught.value)


@pytest.mark.parametrize(
    ("line", "column", "got"),
    [
        ("  %y : float32[2] = Relu(%p", 28, "the end of the line"),
        ("  output %p extra", 13, "'extra'"),
        ("  %y : float32[2] = §(%p)", 21, "§(%p)"),
        ("  %y : float32[2] = Clip(%p) {low=}", 35, "'}'"),
    ],
)
def test_a_syntax_error_names_the_column(line, column, got):
    with pytest.raises(CompilerError) as caught:
        parse(f'graph "g"\n  placeholder %p : float32[2]\n{line}\n')
    assert caught.value.parts["where"] == f"line 3, column {column}"
    assert caught.value.parts["got"] == got
