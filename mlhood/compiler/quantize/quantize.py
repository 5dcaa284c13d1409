"""The quantisation pass: rewrite a float graph to integers, except at its inputs and outputs."""

from __future__ import annotations

from mlhood.compiler.hir.graph import Graph
from mlhood.compiler.hir.names import gc_paused
from mlhood.compiler.hir.operator import Unsupported
from mlhood.compiler.quantize.builder import Builder
from mlhood.compiler.quantize.profile import Profile
from mlhood.compiler.quantize.rules import RULES
from mlhood.compiler.quantize.schema import Recipe


@gc_paused()
def quantize(graph: Graph, profile: Profile, recipe: Recipe | None = None) -> Graph:
    """Return a graph that computes with integers where its operators support it.

    1. Placeholders and outputs stay float and keep their names: a Quantize is inserted between a placeholder and
       integer users, a Dequantize before an output.
    2. Conv, FullyConnected, Add, Mul, average pooling, Relu, Clip and LeakyRelu become integer operators; the
       parameters of their results come from the profile. Conv and FullyConnected need constant weights, which become
       int8 or int16, and biases int32 in units of scale_x scale_w.
    3. MaxPool and operators that only move elements stay, and their results keep their input's parameters. Concat's
       inputs are rescaled to its result's, unless they have the same.
    4. Sigmoid, Tanh and other elementwise functions become lookup tables of 256 entries; with int16 they stay float.
       The range before a function that is fused into a layer comes from the profile as well.
    5. Sums, products and functions stay float where all that they read is computed in float, and where they read or
       make a mask: infinities, or a few numbers that are so large that nothing is left of the others.
    6. All other operators stay float, behind a Dequantize; `report.kept_in_float` lists them.

    Values and nodes keep their names: the value named x in the result holds the integers that represent x.

    Args:
        graph: The optimised float graph; not modified.
        profile: The distributions of its values on calibration data.
        recipe: How to quantise; asymmetric int8 by default.

    Raises:
        CompilerError: The profile belongs to another graph.
    """
    profile.check(graph)
    builder = Builder(graph, profile, recipe or Recipe())
    for node in graph.topological():
        rule = node.operator.quantization_rule
        if isinstance(rule, Unsupported) or not RULES[rule](builder, node):
            builder.copy(node)
    for name, value in graph.outputs.items():
        builder.graph.output(builder.as_float(value), name)
    return builder.graph
