"""Rescalings that can be spared: rule by rule, on graphs written as text."""

import numpy as np
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.hir import verify
from mlhood.compiler.hir.text import to_text
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.parse import parse
from mlhood.compiler.passes import optimize
from mlhood.compiler.passes.clean_quantization import clean_quantization
from mlhood.compiler.quantize import Recipe, profile, quantize, sqnr

P = "quantized(scale=[0.1], offset=[3])"
Q = "quantized(scale=[0.25], offset=[-7])"
R = "quantized(scale=[0.05], offset=[1])"
HALF = "quantized(scale=[0.5], offset=[0])"
WHOLE = "quantized(scale=[1.0], offset=[0])"
HEAD = 'graph "clean"\n  placeholder %x : float32[2, 2, 4, 4]\n'
STORED = f'  %a : int8[2, 2, 4, 4] {P} = Quantize(%x) {{element="int8", quantization={P}}}\n'


def cleaned(body):
    """The graph of a text after the pass, and its operators; verified, and again run to see that it has ended."""
    before = parse(HEAD + body)
    verify(before)
    after = before.copy()
    changed = clean_quantization(after)
    verify(after)
    while clean_quantization(after):
        verify(after)
    assert changed == (to_text(before) != to_text(after))
    return before, after, [node.operator.name for node in after.topological()]


def runs(before, after, steps):
    """Both give the same, up to some steps of 0.25."""
    x = np.random.default_rng(0).uniform(-12, 12, (2, 2, 4, 4)).astype(np.float32)
    (wanted,), (got,) = (Interpreter(graph).run({"x": x}).values() for graph in (before, after))
    assert np.abs(wanted - got).max() <= steps * 0.25 + 1e-6


RESCALE = f"  %b : int8[2, 2, 4, 4] {Q} = Rescale(%a) {{quantization={Q}}}\n"
END = "  %y : float32[2, 2, 4, 4] = Dequantize(%b)\n  output %y\n"


def test_to_reals_and_back_is_nothing():
    body = STORED + "  %r : float32[2, 2, 4, 4] = Dequantize(%a)\n"
    body += f'  %b : int8[2, 2, 4, 4] {P} = Quantize(%r) {{element="int8", quantization={P}}}\n' + END
    before, after, operators = cleaned(body)
    assert operators == ["Quantize", "Dequantize"]
    runs(before, after, 0)


@pytest.mark.parametrize(("first", "second", "alike"), [(P, Q, True), (HALF, WHOLE, False)])
def test_to_reals_and_back_with_others_is_a_rescale_where_no_tie_tells(first, second, alike):
    """Halves go up in integers and to the even one in reals."""
    body = "  %s : float32[2, 2, 4, 4] = Relu(%x)\n" + STORED.replace(P, first).replace("%x)", "%s)")
    body += "  %r : float32[2, 2, 4, 4] = Dequantize(%a)\n"
    body += f'  %b : int8[2, 2, 4, 4] {second} = Quantize(%r) {{element="int8", quantization={second}}}\n'
    # two readers keep the rescale where it is
    before, after, operators = cleaned(body + END.replace("output %y", "output %y\n  output %r"))
    assert ("Rescale" in operators or operators.count("Quantize") == 1) is alike
    x = np.random.default_rng(0).uniform(-12, 12, (2, 2, 4, 4)).astype(np.float32)
    for name, array in Interpreter(before).run({"x": x}).items():
        np.testing.assert_allclose(Interpreter(after).run({"x": x})[name], array, atol=0.126)


def test_a_rescale_goes_into_what_stores_its_input():
    before, after, operators = cleaned(STORED + RESCALE + END)
    assert operators == ["Quantize", "Dequantize"]
    assert after.value("a").type.quantization == before.value("b").type.quantization
    runs(before, after, 1)


def test_a_rescale_with_an_activation_stays_behind_a_quantize():
    body = STORED + RESCALE.replace("}\n", ', activation=["Relu"]}\n') + END
    before, after, operators = cleaned(body)
    assert operators == ["Quantize", "Rescale", "Dequantize"]
    runs(before, after, 0)


def test_two_rescales_are_one():
    other = RESCALE.replace("%b", "%c").replace(Q, R)
    body = STORED + other + RESCALE.replace("%a", "%c") + END.replace("output %y", "output %y\n  output %a")
    _, after, operators = cleaned(body)
    assert operators.count("Rescale") == 0  # the one that is left is read by a Dequantize
    assert after.outputs["a"].type.quantization.scale == (0.1,)


WINDOW = "kernel=[2, 2], strides=[1, 1], pads=[0, 0, 0, 0], dilations=[1, 1]"
POOLED = f"""  %m : int8[2, 2, 3, 3] {Q} = MaxPool(%b) {{{WINDOW}}}
  %t : int8[2, 3, 3, 2] {Q} = Transpose(%m) {{permutation=[0, 2, 3, 1]}}
  %f : int8[2, 18] {Q} = Flatten(%t)
  %s : int8[2, 18] {Q} = QuantizedMul(%f, %f) {{quantization={Q}}}
  %y : float32[2, 18] = Dequantize(%s)
  output %y
"""


def test_a_rescale_sinks_behind_what_moves_elements_and_is_read_through():
    before, after, operators = cleaned(STORED + RESCALE + POOLED)
    assert operators == ["Quantize", "MaxPool", "Transpose", "Flatten", "QuantizedMul", "Dequantize"]
    runs(before, after, 60)  # the product of two numbers of up to 12, each off by up to a step


def test_sinking_alone_changes_no_integer():
    activation = ', activation=["Relu"]}\n'
    before, after, operators = cleaned(STORED + RESCALE.replace("}\n", activation) + POOLED)
    assert operators == ["Quantize", "MaxPool", "Transpose", "Flatten", "Rescale", "QuantizedMul", "Dequantize"]
    runs(before, after, 0)
    assert [node.name for node in after.topological()][1:5] == ["m", "t", "f", "b"]
    assert after.value("f").producer.operator.name == "Rescale"


def test_the_largest_of_what_turns_order_round_is_not_that_of_what_is_largest():
    body = STORED + RESCALE.replace("}\n", ', activation=["LeakyRelu", -0.5]}\n') + POOLED
    before, after, operators = cleaned(body)
    assert operators[1:3] == ["Rescale", "MaxPool"]
    runs(before, after, 0)


@pytest.mark.parametrize("fused", ["", ', activation=["Relu"]'])
@pytest.mark.parametrize("layer", ["QuantizedAdd(%a, %a)", "QuantizedMul(%a, %a)"])
def test_a_rescale_goes_into_the_layer_before_it(layer, fused):
    body = STORED + f"  %l : int8[2, 2, 4, 4] {P} = {layer} {{quantization={P}}}\n"
    body += RESCALE.replace("%a", "%l").replace("}\n", fused + "}\n") + END
    before, after, operators = cleaned(body)
    assert operators == ["Quantize", layer.partition("(")[0], "Dequantize"]
    (node,) = (node for node in after.nodes.values() if node.name == "l")
    assert node.outputs[0].name == ("b" if fused else "l")
    assert node.operator.activation == (("Relu",) if fused else ())
    x = np.random.default_rng(0).uniform(-3, 3, (2, 2, 4, 4)).astype(np.float32)
    got, wanted = (Interpreter(graph).run({"x": x})["y"] for graph in (after, before))
    inside = np.abs(wanted) < 12  # what lies further out, the first rounding has cut off
    assert np.abs(got - wanted)[inside].max() <= 0.25 + 1e-6


def test_a_second_activation_stays():
    body = STORED + f'  %l : int8[2, 2, 4, 4] {P} = QuantizedAdd(%a, %a) {{quantization={P}, activation=["Relu"]}}\n'
    body += RESCALE.replace("%a", "%l").replace("}\n", ', activation=["LeakyRelu", 0.5]}\n') + END
    before, after, operators = cleaned(body)
    assert operators == ["Quantize", "QuantizedAdd", "Rescale", "Dequantize"]
    runs(before, after, 0)


def test_what_two_read_stays():
    body = STORED + RESCALE + END + "  %z : float32[2, 2, 4, 4] = Dequantize(%a)\n  output %z\n"
    before, after, operators = cleaned(body)
    assert operators == ["Quantize", "Dequantize", "Dequantize"]  # rule 8 only
    assert after.value("a").type == before.value("a").type


def test_branches_of_a_concatenation_are_stored_as_it_is(branches_graph, branches_profile, pictures):
    quantized = quantize(branches_graph, branches_profile)
    clean = optimize(quantized, check=True)
    names = [[node.operator.name for node in graph.topological()] for graph in (quantized, clean)]
    assert names[0].count("Rescale") == 2
    assert names[1].count("Rescale") == 0
    (join,) = (node for node in clean.topological() if node.operator.name == "Concat")
    assert {value.producer.operator.name for value in join.inputs} == {"Lookup"}
    wanted, *got = (Interpreter(g).run({"image": pictures})["logits"] for g in (branches_graph, quantized, clean))
    assert sqnr(wanted, got[1]) > sqnr(wanted, got[0]) - 0.5


@pytest.mark.parametrize("element", ["int8", "int16"])
def test_all_passes_leave_a_quantised_graph_sound(tf_lenet, element):
    graph = optimize(import_model(tf_lenet))
    (name,) = graph.placeholders
    x = {name: np.random.default_rng(0).standard_normal((8, 32, 32, 1), np.float32)}
    quantized = quantize(graph, profile(graph, [x]), Recipe(element=element))
    clean = optimize(quantized, check=True)
    wanted, got = (next(iter(Interpreter(one).run(x).values())) for one in (quantized, clean))
    np.testing.assert_allclose(wanted, got, atol=1e-6)
