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

TWO_NESTS = """
def linear_relu(x, w, b, y):
    rows, outputs = y.shape
    for i in range(rows):
        for j in range(outputs):
            y[i, j] = b[j] + sum(x[i, k] * w[j, k] for k in range(w.shape[1]))
    for i in range(rows):
        for j in range(outputs):
            y[i, j] = max({z}, 0)
"""
RESETS = ["y.reads = 0; y.writes = y.size", "y.array", "y._counts.reads = 0", "vars(y).update(reads=0)"]


def judged(source: str, folder) -> dict[str, str]:
    names: dict = {"np": np}
    exec(source, names)
    task = P2.task("P2.1")
    assert task is not None
    result = judge(task, Session(LocalTransport(names), folder, folder), 5)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}


def test_two_nests_read_back_what_they_wrote(tmp_path):
    messages = judged(TWO_NESTS.format(z="y[i, j]"), tmp_path)
    assert not messages["one_nest_computes_the_layer"]
    assert messages["nothing_is_stored_in_between"]


@pytest.mark.parametrize("reset", RESETS)
def test_counts_cannot_be_set_back(reset, tmp_path):
    source = TWO_NESTS.format(z="y[i, j]") + f"    try:\n        {reset}\n    except Exception:\n        pass\n"
    assert judged(source, tmp_path)["nothing_is_stored_in_between"]


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
