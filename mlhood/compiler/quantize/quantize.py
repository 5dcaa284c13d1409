"""The quantisation of a graph: from reals to integers, except at its inputs and outputs."""

from __future__ import annotations

from mlhood.compiler.hir.garbage_collection import gc_paused
from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.values import Node
from mlhood.compiler.quantize.builder import Builder
from mlhood.compiler.quantize.profile import Profile
from mlhood.compiler.quantize.recipe import Recipe
from mlhood.compiler.quantize.rules import RULES


@gc_paused()
def quantize(graph: Graph, profile: Profile, recipe: Recipe | None = None) -> Graph:
    """Return a graph that computes with integers where the operators can.

    1. Placeholders and outputs stay float, under their names: a Quantize follows a placeholder where integers are
       read, a Dequantize stands before an output.
    2. Conv, FullyConnected, Add, Mul, the averages, Relu, Clip and LeakyRelu become integer operators; the parameters
       of what they make come from the profile. Conv and FullyConnected need constant weights, which become int8 or
       int16, and biases int32 in units of scale_x scale_w.
    3. MaxPool and what only moves elements stay, and keep their input's parameters. Concat's inputs are rescaled to
       its result's, unless they share theirs.
    4. Sigmoid, Tanh and other functions of one number become tables of 256 entries; with int16 they stay float.
    5. All else stays float, behind a Dequantize; `report.kept_in_float` lists it.

    A value keeps its name: what is called x in the result are the integers that stand for x. Nodes keep theirs.

    Args:
        graph: The optimised float graph; it is not changed.
        profile: What its values hold on calibration data.
        recipe: How to quantise; asymmetric int8 if left out.

    Raises:
        CompilerError: The profile is of another graph.
    """
    profile.check(graph)
    builder = Builder(graph, profile, recipe or Recipe())
    for node in graph.topological():
        if not _on_integers(builder, node):
            builder.keep(node)
    for name, value in graph.outputs.items():
        builder.graph.output(builder.real(value), name)
    return builder.graph


def _on_integers(builder: Builder, node: Node) -> bool:
    rule = RULES.get(type(node.operator))
    return rule is not None and rule(builder, node)
