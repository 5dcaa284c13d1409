"""Programs and stages that checks run in an isolated process, run here."""

from __future__ import annotations

import numpy as np
import pytest

from mlhood.compiler.hir import Graph, TensorType
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.operators.elementwise import Relu
from mlhood.grading.projects.reference_runs import image_bytes, program_runs, stage_costs


@pytest.fixture
def graph() -> Graph:
    """Three ReLUs in a row on ten numbers, from `image` to `logits`, and a constant that nothing reads."""
    graph = Graph("three")
    value = graph.placeholder("image", TensorType("float32", ("batch", 10)))
    for name in ("a", "b", "c"):
        value = graph.add(Relu(), value, name=name).outputs[0]
    graph.constant("w", np.zeros(5, np.float32))
    graph.output(value, "logits")
    return graph


def test_a_program_is_executed_and_its_live_maximum_counted(graph):
    x = np.linspace(-1, 1, 20, dtype=np.float32).reshape(2, 10)
    (report,) = program_runs([to_text(lower(graph, {"batch": 2}))], [{"image": x}])
    assert np.array_equal(report["outputs"]["logits"], np.maximum(x, 0))
    assert report["peak"] == 2 * x.nbytes  # the input of an instruction, and its result


def test_a_program_that_the_verifier_refuses_is_reported_with_the_instruction(graph):
    text = "\n".join(line for line in to_text(lower(graph, {"batch": 2})).splitlines() if "dealloc %a" not in line)
    (report,) = program_runs([text], [{"image": np.zeros((2, 10), np.float32)}])
    assert "never deallocated" in report["error"]
    assert report["got"] == "a"


def test_memory_is_constants_and_arena_for_one_image(graph):
    assert image_bytes(graph) == 5 * 4 + 64 + 10 * 4  # of three buffers two are live, at multiples of 64 bytes
    assert image_bytes(graph, activations="the live maximum") == 5 * 4 + 2 * 10 * 4
    assert image_bytes(graph, activations="all buffers") == 5 * 4 + 3 * 10 * 4


def test_the_digits_of_stages_are_counted(graph):
    images = np.eye(10, dtype=np.float32)
    costs = stage_costs({"one": graph}, (images, np.array([0, 1, 2, 3, 4, 9, 9, 9, 9, 9])))
    assert costs["one"]["digits"] == (6, 6)
    ties = stage_costs({"one": graph}, (0 * images, np.arange(10)))
    assert ties["one"]["digits"] == (0, 10)
