"""Removal of redundant rescalings: rule by rule, on graphs written as text."""

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.parse import parse
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize
from mlhood.compiler.passes.clean_quantization import clean_quantization
from mlhood.compiler.quantize import Recipe, profile, quantize, sqnr

P = "quantized(scale=[0.1], offset=[3])"
Q = "quantized(scale=[0.25], offset=[-7])"
R = "quantized(scale=[0.05], offset=[1])"
HALF = "quantized(scale=[0.5], offset=[0])"
UNIT = "quantized(scale=[1.0], offset=[0])"
HEAD = 'graph "clean"\n  placeholder %x : float32[2, 2, 4, 4]\n'
QUANTIZED = f'  %a : int8[2, 2, 4, 4] {P} = Quantize(%x) {{element="int8", quantization={P}}}\n'


def clean(body):
    """Return the graph before and after the pass, and its operators; verify it, and run the pass to a fixed point."""
    before = parse(HEAD + body)
    verify(before)
    after = before.copy()
    changed = clean_quantization(after)
    verify(after)
    while clean_quantization(after):
        verify(after)
    assert changed == (to_text(before) != to_text(after))
    return before, after, [node.operator.name for node in after.topological()]


def assert_equal(before, after, steps):
    """Check that both graphs compute the same, up to some steps of 0.25."""
    x = np.random.default_rng(0).uniform(-12, 12, (2, 2, 4, 4)).astype(np.float32)
    (expected,), (got,) = (Interpreter(graph).run({"x": x}).values() for graph in (before, after))
    assert np.abs(expected - got).max() <= steps * 0.25 + 1e-6


RESCALE = f"  %b : int8[2, 2, 4, 4] {Q} = Rescale(%a) {{quantization={Q}}}\n"
END = "  %y : float32[2, 2, 4, 4] = Dequantize(%b)\n  output %y\n"


def test_a_dequantize_and_quantize_with_the_same_parameters_are_removed():
    body = QUANTIZED + "  %r : float32[2, 2, 4, 4] = Dequantize(%a)\n"
    body += f'  %b : int8[2, 2, 4, 4] {P} = Quantize(%r) {{element="int8", quantization={P}}}\n' + END
    before, after, operators = clean(body)
    assert operators == ["Quantize", "Dequantize"]
    assert_equal(before, after, 0)


@pytest.mark.parametrize(("first", "second", "is_rescaled"), [(P, Q, True), (HALF, UNIT, False)])
def test_a_dequantize_and_quantize_become_a_rescale_unless_ties_can_occur(first, second, is_rescaled):
    """Ties are rounded up by a Rescale and to even by a Quantize."""
    body = "  %s : float32[2, 2, 4, 4] = Relu(%x)\n" + QUANTIZED.replace(P, first).replace("%x)", "%s)")
    body += "  %r : float32[2, 2, 4, 4] = Dequantize(%a)\n"
    body += f'  %b : int8[2, 2, 4, 4] {second} = Quantize(%r) {{element="int8", quantization={second}}}\n'
    # a second user keeps the Rescale from being merged
    before, after, operators = clean(body + END.replace("output %y", "output %y\n  output %r"))
    assert ("Rescale" in operators or operators.count("Quantize") == 1) is is_rescaled
    x = np.random.default_rng(0).uniform(-12, 12, (2, 2, 4, 4)).astype(np.float32)
    for name, array in Interpreter(before).run({"x": x}).items():
        np.testing.assert_allclose(Interpreter(after).run({"x": x})[name], array, atol=0.126)


def test_a_rescale_is_merged_into_a_quantize():
    before, after, operators = clean(QUANTIZED + RESCALE + END)
    assert operators == ["Quantize", "Dequantize"]
    assert after.value("a").type.quantization == before.value("b").type.quantization
    assert_equal(before, after, 1)


def test_a_rescale_with_an_activation_is_not_merged_into_a_quantize():
    body = QUANTIZED + RESCALE.replace("}\n", ', activation=["Relu"]}\n') + END
    before, after, operators = clean(body)
    assert operators == ["Quantize", "Rescale", "Dequantize"]
    assert_equal(before, after, 0)


def test_two_rescales_are_merged():
    other = RESCALE.replace("%b", "%c").replace(Q, R)
    body = QUANTIZED + other + RESCALE.replace("%a", "%c") + END.replace("output %y", "output %y\n  output %a")
    _, after, operators = clean(body)
    assert operators.count("Rescale") == 0  # the merged one is folded into its Dequantize
    assert after.outputs["a"].type.quantization.scale == (0.1,)


WINDOW = "kernel=[2, 2], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]"
POOLED = f"""  %m : int8[2, 2, 3, 3] {Q} = MaxPool(%b) {{{WINDOW}}}
  %t : int8[2, 3, 3, 2] {Q} = Transpose(%m) {{permutation=[0, 2, 3, 1]}}
  %f : int8[2, 18] {Q} = Flatten(%t)
  %s : int8[2, 18] {Q} = QuantizedMul(%f, %f) {{quantization={Q}}}
  %y : float32[2, 18] = Dequantize(%s)
  output %y
"""


def test_a_rescale_sinks_below_operators_that_move_elements_and_is_folded():
    before, after, operators = clean(QUANTIZED + RESCALE + POOLED)
    assert operators == ["Quantize", "MaxPool", "Transpose", "Flatten", "QuantizedMul", "Dequantize"]
    assert_equal(before, after, 60)  # the product of two numbers up to 12, each with an error of up to one step


def test_sinking_preserves_all_integers():
    activation = ', activation=["Relu"]}\n'
    before, after, operators = clean(QUANTIZED + RESCALE.replace("}\n", activation) + POOLED)
    assert operators == ["Quantize", "MaxPool", "Transpose", "Flatten", "Rescale", "QuantizedMul", "Dequantize"]
    assert_equal(before, after, 0)
    assert [node.name for node in after.topological()][1:5] == ["m", "t", "f", "b"]
    assert after.value("f").producer.operator.name == "Rescale"


def test_a_decreasing_activation_does_not_sink_below_a_max_pool():
    body = QUANTIZED + RESCALE.replace("}\n", ', activation=["LeakyRelu", -0.5]}\n') + POOLED
    before, after, operators = clean(body)
    assert operators[1:3] == ["Rescale", "MaxPool"]
    assert_equal(before, after, 0)


@pytest.mark.parametrize("fused", ["", ', activation=["Relu"]'])
@pytest.mark.parametrize("layer", ["QuantizedAdd(%a, %a)", "QuantizedMul(%a, %a)"])
def test_a_rescale_is_merged_into_the_preceding_layer(layer, fused):
    body = QUANTIZED + f"  %l : int8[2, 2, 4, 4] {P} = {layer} {{quantization={P}}}\n"
    body += RESCALE.replace("%a", "%l").replace("}\n", fused + "}\n") + END
    before, after, operators = clean(body)
    assert operators == ["Quantize", layer.partition("(")[0], "Dequantize"]
    (node,) = (node for node in after.nodes.values() if node.name == "l")
    assert node.outputs[0].name == ("b" if fused else "l")
    assert node.operator.activation == (("Relu",) if fused else ())
    x = np.random.default_rng(0).uniform(-3, 3, (2, 2, 4, 4)).astype(np.float32)
    got, expected = (Interpreter(graph).run({"x": x})["y"] for graph in (after, before))
    inside = np.abs(expected) < 12  # larger values were saturated by the first rounding
    assert np.abs(got - expected)[inside].max() <= 0.25 + 1e-6


def test_a_second_activation_is_not_merged():
    body = QUANTIZED + f'  %l : int8[2, 2, 4, 4] {P} = QuantizedAdd(%a, %a) {{quantization={P}, activation=["Relu"]}}\n'
    body += RESCALE.replace("%a", "%l").replace("}\n", ', activation=["LeakyRelu", 0.5]}\n') + END
    before, after, operators = clean(body)
    assert operators == ["Quantize", "QuantizedAdd", "Rescale", "Dequantize"]
    assert_equal(before, after, 0)


def test_a_value_with_two_uses_is_not_merged():
    body = QUANTIZED + RESCALE + END + "  %z : float32[2, 2, 4, 4] = Dequantize(%a)\n  output %z\n"
    before, after, operators = clean(body)
    assert operators == ["Quantize", "Dequantize", "Dequantize"]  # rule 8 only
    assert after.value("a").type == before.value("a").type


def test_inputs_of_a_concat_get_its_parameters(branches_graph, branches_profile, images):
    quantized = quantize(branches_graph, branches_profile)
    clean = optimize(quantized, check=True)
    names = [[node.operator.name for node in graph.topological()] for graph in (quantized, clean)]
    assert names[0].count("Rescale") == 2
    assert names[1].count("Rescale") == 0
    (join,) = (node for node in clean.topological() if node.operator.name == "Concat")
    assert {value.producer.operator.name for value in join.inputs} == {"Lookup"}
    expected, *got = (Interpreter(g).run({"image": images})["logits"] for g in (branches_graph, quantized, clean))
    assert sqnr(expected, got[1]) > sqnr(expected, got[0]) - 0.5


@pytest.mark.parametrize("element", ["int8", "int16"])
def test_all_passes_preserve_a_quantised_graph(tf_lenet, element):
    graph = optimize(import_model(tf_lenet))
    (name,) = graph.placeholders
    x = {name: np.random.default_rng(0).standard_normal((8, 32, 32, 1), np.float32)}
    quantized = quantize(graph, profile(graph, [x]), Recipe(element=element))
    clean = optimize(quantized, check=True)
    expected, got = (next(iter(Interpreter(g).run(x).values())) for g in (quantized, clean))
    np.testing.assert_allclose(expected, got, atol=1e-6)
