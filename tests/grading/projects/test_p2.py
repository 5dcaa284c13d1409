"""The checks of P2 in the test's own process: what is counted there cannot be invented."""

from __future__ import annotations

from dataclasses import replace
from functools import cache
from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.compiler.backends.nmp.codegen.convolution import convolution, convolution_program
from mlhood.compiler.backends.nmp.codegen.slicing import Slicing, operand_bytes
from mlhood.compiler.backends.nmp.cycles import time_program
from mlhood.compiler.backends.nmp.machine import Dram, default_machine
from mlhood.compiler.lir.instructions import Alloc, Dealloc
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.memory.plan import live_bytes
from mlhood.compiler.operators.convolution import Conv
from mlhood.compiler.quantize.schema import choose_parameters
from mlhood.compiler.tables import latency_table
from mlhood.grading.checks import expect
from mlhood.grading.checks.marks import grade_task
from mlhood.grading.checks.submission import Session
from mlhood.grading.projects.p2 import P2, integers, memory, neural_processor, processor, shapes
from mlhood.grading.projects.solution import Solution
from mlhood.grading.rpc.transport import LocalTransport
from mlhood.measure.measurement import Measurement
from tests.grading.projects.examples import edited

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


# each value of each parameter, in an otherwise unchanged variant
VARIANTS = [{each.name: value} for task in P2.declared for each in task.varies for value in each.values]


def of_task(task_id: str) -> list[dict]:
    """Return the variants that change this task."""
    (task,) = (task for task in P2.declared if task.id == task_id)
    return [values for values in VARIANTS if values.keys() & {each.name for each in task.varies}]


@cache
def solution(**values) -> Solution:
    return Solution("P2", P2.parameters | values)


def drawing(seed: int, **values) -> SimpleNamespace:
    """Return what draws of arguments take for a submission."""
    return SimpleNamespace(
        rng=np.random.default_rng(seed),
        parameters=SimpleNamespace(**P2.parameters | values),
        solution=solution(**values),
    )


@pytest.mark.parametrize("nest", NESTS)
def test_any_fused_nest_stores_nothing_in_between(nest, tmp_path):
    names: dict = {"np": np}
    exec(f"def linear_relu(x, w, b, y):{NESTS[nest]}{TRAFFIC}", names)
    task = P2.task("P2.1")
    assert task
    checks = grade_task(task, Session(LocalTransport(names), tmp_path, tmp_path), 5).checks
    assert [check.status == "passed" for check in checks] == [True, True, "a row of x" in nest], checks


@pytest.mark.parametrize("seed", range(20))
@pytest.mark.parametrize("views", [False, True])
def test_drawn_programs_are_valid_and_their_ranges_are_those_of_their_allocations(seed, views):
    program = memory.draw_program(np.random.default_rng(seed), views)
    verify(program)
    steps = [each for each in program.instructions if not isinstance(each, (Alloc, Dealloc))]
    numbers = {id(each): number for number, each in enumerate(steps)}
    for name, (first, last) in solution()("live_ranges", steps).items():
        named = [i for i, each in enumerate(program.instructions) if isinstance(each, (Alloc, Dealloc))]
        start, end = (i for i in named if program.instructions[i].buffer.name == name)
        within = [numbers[id(each)] for each in program.instructions[start:end] if id(each) in numbers]
        assert within[0] <= first <= last <= within[-1]  # views are defined before the first use, or after the last


@pytest.mark.parametrize(
    ("key", "is_enough"), [("-buffer.bytes", True), ("buffer.bytes", False), ("buffer.first", False)]
)
def test_whether_a_placing_order_wastes_hardly_a_byte_does_not_depend_on_the_seed(key, is_enough):
    exec(edited("P2-10-solution-2", ("-buffer.bytes", key))["P2-10-solution-2"], cell := {})
    for seed in range(8):
        shares = []
        for _, buffers in memory.draw_sets(np.random.default_rng(seed)):
            offsets = cell["allocate"](buffers, memory.ALIGNMENT)
            shares.append(live_bytes(buffers).max() / max(offsets[each.name] + each.bytes for each in buffers))
        assert (np.mean(shares) >= memory.STEPS[2][0]) == is_enough


def test_solutions_infer_the_types_that_operators_do():
    for seed in range(20):
        x, w, *attributes = shapes.draw_conv(drawing(seed), 1 + seed % 3)
        assert solution()("infer_conv", x, w, *attributes) == Conv(*attributes).infer(x, w)


@pytest.mark.parametrize("schema", ["asymmetric", "symmetric", "symmetric_unsigned", "power_of_two"])
def test_solutions_choose_the_parameters_that_the_quantiser_does(schema):
    for low, high in integers.draw_ranges(np.random.default_rng(1)):
        want = choose_parameters(low, high, "int8", schema)
        assert solution()("choose_parameters", low, high, schema) == pytest.approx(want)


def test_the_course_counts_the_bytes_of_a_slice_as_the_verifier_of_machines_does():
    for seed in range(4):
        for layer, cut, element in neural_processor.draw_slices(drawing(seed)):
            stage = replace(convolution(**layer), element=element)
            assert solution()("slice_bytes", layer, cut, element) == operand_bytes((stage,), Slicing(**cut))


@pytest.mark.parametrize("values", of_task("P2.12"))
def test_cuts_are_graded_by_the_bytes_that_the_solution_counts(values):
    submission = drawing(0, **values)
    for arguments in neural_processor.draw_slices(submission):
        want = submission.solution("slice_bytes", *arguments)
        assert neural_processor.needed_bytes(submission.parameters, *arguments) == want


@pytest.mark.parametrize("values", of_task("P2.13"))
def test_solutions_give_the_bytes_and_cycles_of_simulated_programs(values):
    submission, element = drawing(0, **values), values.get("moved_element", 1)
    for number in range(4):
        layer, cut, numbers = neural_processor.draw_serial(submission, number)
        dram = Dram(2**20, 1, numbers["byte_cycles"], numbers["latency"])
        machine = replace(
            default_machine(),
            name="serial",
            tiles=1,
            tilelets=1,
            macs_per_cycle=element * numbers["lanes"],
            issue_cycles=numbers.get("issue", 0),
            barrier_cycles=numbers.get("barrier", 0),
            dram=dram,
        )
        for order in neural_processor.ORDERS:
            stage, slicing = replace(convolution(**layer), element=element), Slicing(**cut, order=order)
            timing = time_program(convolution_program(stage, slicing, machine))
            moved = submission.solution("bytes_moved", layer, cut, order)
            assert (moved if isinstance(moved, int) else sum(moved.values())) == timing.bytes
            assert submission.solution("cycles_of", layer, cut, timing.bytes, numbers) == timing.cycles


@pytest.mark.parametrize(
    ("times", "stall", "shown"),
    [((1.0, 1.0), 0, False), ((3.0, 1.0), 0, True), ((3.0, 1.0), 200, True), ((1.0, 3.0), 0, False)],
)
def test_a_table_has_to_show_that_optimised_is_faster(times, stall, shown):
    """Also on a machine whose other programs stall two of three calls."""
    table, rounds = latency_table(), [1 + number % 5 / 100 + stall * (number % 3 > 0) for number in range(25)]
    for row in table.rows:
        for column, time in zip(table.columns, (*times, 1.0, 1.0), strict=True):
            seconds = (
                tuple(time * each for each in reversed(rounds)) if column == "optimised" else [time * x for x in rounds]
            )
            table[row, column] = Measurement(tuple(seconds), run=row)
    submission = SimpleNamespace(session=SimpleNamespace(remeasure=False))
    assert expect.holds(processor.check_shown, submission, table) == shown


@pytest.mark.parametrize(
    ("noisy", "error"), [(("16 images",), expect.CheckFailed), (("1 image", "16 images"), expect.CheckUndecided)]
)
def test_a_table_of_equal_columns_is_left_open_only_if_every_row_is_noisy(noisy, error):
    table, rounds = latency_table(), np.arange(25)
    for row in table.rows:
        for column in table.columns:
            stalled = (row in noisy) * (rounds % 3 == (column == "optimised"))
            order = -1 if column == "optimised" else 1  # so that the interval contains 1, and more than 1
            table[row, column] = Measurement(tuple(1 + rounds[::order] % 5 / 100 + 200 * stalled), run=row)
    with pytest.raises(error):
        processor.check_shown(SimpleNamespace(session=SimpleNamespace(remeasure=False)), table)
