"""Dead code elimination."""

import numpy as np

from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.operators.pooling import MaxPool
from tests.compiler.passes.building import Tanh, apply, example, kinds

PASS = "remove_dead_code"


def test_a_dead_branch_is_removed_with_its_constants_but_not_the_placeholders():
    def make(b):
        x, unused = b.x("n", 2), b.x("n", 2, name="unused")
        b(Relu(), b(Add(), b(Relu(), unused), b.constant(np.ones(2, np.float32))))
        return b(Tanh(), x)

    graph = apply(make, PASS)
    assert kinds(graph) == ["Tanh"]
    assert set(graph.placeholders) == {"x", "unused"}
    assert not graph.constants


def test_outputs_stay():
    def make(b):
        y = b(Relu(), b.x("n", 2))
        return b(Tanh(), y), y, b.constant(np.ones(2, np.float32))

    graph = apply(make, PASS)
    assert kinds(graph) == ["Relu", "Tanh"]
    assert set(graph.constants) == {"c"}


def test_a_node_stays_if_one_of_its_outputs_is_used():
    def make(b):
        pool = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
        return b.graph.add(pool, b.x("n", 2, 4, 4)).outputs[1]

    assert kinds(apply(make, PASS)) == ["MaxPool"]


def make(b):
    x = b(Relu(), b.x("n", 2), name="relu")
    b(Add(), x, b.constant(np.ones(2, np.float32), "unread"), name="dead")
    return b(Tanh(), x, name="tanh")


test_golden = example(PASS, make)
