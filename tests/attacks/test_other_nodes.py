"""Graphs that look rewritten, since their nodes have other names: they earn no point."""

from __future__ import annotations

from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects import PROJECTS
from mlhood.grading.rpc.transport import LocalTransport

OTHER_NODES = """
import numpy as np
from mlhood.compiler.operators import OPERATORS

def matches(graph, name):
    for node in [each for each in graph.nodes.values() if each.operator.name == name]:
        value, constants = node.inputs[0], {*graph.constants.values()}
        conv = value.producer
        single = len(value.users) == 1 and not graph.is_output(value)
        if conv and conv.operator.name == "Conv" and not conv.operator.activation and single:
            if name == "Relu" or constants.issuperset(conv.inputs[1:] + node.inputs[1:]):
                yield node

def fold_batchnorm(graph):
    for norm in matches(graph, "BatchNormalization"):
        gamma, beta, mean, var = (value.data[:, None, None] for value in norm.inputs[1:])
        factor = gamma / np.sqrt(var + np.float32(norm.operator.epsilon))
        scaled = graph.add(OPERATORS["Mul"](), norm.inputs[0], graph.constant("factor", factor)).outputs[0]
        graph.replace(norm, OPERATORS["Add"](), scaled, graph.constant("shift", beta - mean * factor))
        return True
    return False

def fuse_relu(graph):
    found = list(matches(graph, "Relu"))
    for node in found:
        graph.replace(node, OPERATORS["LeakyRelu"](0.0), node.inputs[0])
    return bool(found)
"""


def test_nodes_count_whatever_they_are_called(tmp_path):
    names: dict = {}
    exec(OTHER_NODES, names)
    result = grade_task(PROJECTS["P2"].task("P2.4"), Session(LocalTransport(names), tmp_path, tmp_path), 5)
    assert result.earned == 0
    assert all("leaves" in check.what for check in result.checks)
