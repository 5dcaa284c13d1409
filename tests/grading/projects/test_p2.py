"""The checks of P2 in the test's own process: what is counted and measured there cannot be invented."""

from __future__ import annotations

from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.compiler.backends.nmp.codegen.slicing import Slicing, operand_bytes
from mlhood.compiler.lir.instructions import Alloc, Dealloc
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.memory.plan import live_bytes, plan
from mlhood.grading.checks.marks import judge
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects.p2 import P2, memory, networks, neural_processor
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.grading.variants.parameter import defaults

NESTS = {
    "columns first, from the last": """
    for j in reversed(range(len(w))):
        for i in reversed(range(len(x))):
            y[i, j] = max(b[j] + sum(x[i, k] * w[j, k] for k in range(w.shape[1])), 0)
""",
    "four rows and three columns at a time, in registers": """
    rows, outputs = y.shape
    for i in range(0, rows, 4):
        for j in range(0, outputs, 3):
            sums = {(r, c): b[c] for r in range(i, min(i + 4, rows)) for c in range(j, min(j + 3, outputs))}
            for k in range(x.shape[1]):
                for r, c in sums:
                    sums[r, c] += x[r, k] * w[c, k]
            for place, total in sums.items():
                y[place] = max(total, 0)
""",
    "a row of x in registers": """
    for i in range(len(x)):
        row = list(x[i])
        for j in range(len(w)):
            y[i, j] = max(sum((p * q for p, q in zip(row, w[j])), b[j]), 0)
""",
}
TRAFFIC = """
def traffic(rows, depth, outputs):
    n = rows * outputs
    return {"separate": n * (2 * depth + 4), "fused": rows * depth + n * (depth + 2)}
"""


def judged(source: str, folder) -> dict[str, str]:
    names: dict = {"np": np}
    exec(source, names)
    task = P2.task("P2.1")
    assert task is not None
    result = judge(task, Session(LocalTransport(names), folder, folder), 5)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}


@pytest.mark.parametrize("nest", NESTS)
def test_any_fused_nest_stores_nothing_in_between(nest, tmp_path):
    messages = judged(f"def linear_relu(x, w, b, y):{NESTS[nest]}{TRAFFIC}", tmp_path)
    assert not messages["one_nest_computes_the_layer"]
    assert not messages["nothing_is_stored_in_between"]
    assert (messages["traffic_is_predicted"] == "") == ("a row of x" in nest), messages


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("views", [False, True])
def test_drawn_programs_are_valid_and_their_ranges_are_those_of_their_allocations(seed, views):
    program = memory.draw_program(np.random.default_rng(seed), views)
    verify(program)
    steps = [each for each in program.instructions if not isinstance(each, (Alloc, Dealloc))]
    numbers = {id(each): number for number, each in enumerate(steps)}
    for name, (first, last) in memory.live_ranges(steps).items():
        named = [i for i, each in enumerate(program.instructions) if isinstance(each, (Alloc, Dealloc))]
        start, end = (i for i in named if program.instructions[i].buffer.name == name)
        within = [numbers[id(each)] for each in program.instructions[start:end] if id(each) in numbers]
        assert within[0] <= first <= last <= within[-1]  # views are defined before the first use, or after the last


@pytest.mark.parametrize("draw", [networks.random_buffers, networks.residual_network, networks.inverted_residuals])
def test_drawn_lifetimes_can_be_planned_well_and_waste_memory_one_after_another(draw):
    for seed in range(5):
        buffers = draw(np.random.default_rng(seed))
        assert len({buffer.name for buffer in buffers}) == len(buffers) >= 20
        assert plan(buffers).efficiency > 0.99
        assert live_bytes(buffers).max() < 0.5 * sum(buffer.bytes for buffer in buffers)


def test_a_residual_network_of_224_pixels_has_the_live_maximum_of_resnet_18():
    class Fixed:
        """Draws the original's width and resolution."""

        def integers(self, low, high):
            return 64 if high == 80 else 56

    buffers = networks.residual_network(Fixed())
    assert live_bytes(buffers).max() == 4 * 64 * (112 * 112 + 56 * 56)


def test_the_course_counts_the_bytes_of_a_slice_as_the_verifier_of_machines_does():
    parameters = (neural_processor.INPUT_SLICE, neural_processor.FILTER_CONSTANTS, neural_processor.PARTIAL_BYTES)
    rules, rng = SimpleNamespace(**defaults(parameters)), np.random.default_rng(3)
    for number in range(40):
        layer = neural_processor.draw_layer(rng, deep=number % 2 == 1)
        stage = neural_processor.stage_of(layer, number % 3 % 2 + 1)
        lengths = stage.out_height, stage.out_width, stage.filters, stage.channels
        sizes = (int(rng.integers(1, length + 1)) if rng.random() < 0.7 else length for length in lengths)
        rows, columns, filters, channels = sizes
        needed = neural_processor.needed_bytes(rules, stage, rows, columns, filters, channels)
        assert needed == operand_bytes((stage,), Slicing(rows, columns, filters, channels))


def test_variants_count_padding_rows_lines_constants_and_accumulators():
    layer = {"channels": 4, "height": 6, "width": 7, "filters": 5, "kernel": 3, "stride": 1, "pad": 1}
    stage, cut = neural_processor.stage_of(layer), (6, 2, 3, 2)
    rules = {"filter_constants": "a bias and a multiplier of four bytes each", "partial_bytes": "three"}
    inputs = {
        "its padding": 2 * 8 * 4,
        "no padding, in whole rows": 2 * 6 * 7,
        "no padding, in lines of 8 bytes": 2 * 6 * 8,
    }
    for kind, size in inputs.items():
        needed = neural_processor.needed_bytes(SimpleNamespace(input_slice=kind, **rules), stage, *cut)
        assert needed == {"input": size, "weights": 3 * (8 + 2 * 9), "output": 3 * 6 * 2 * 3}
