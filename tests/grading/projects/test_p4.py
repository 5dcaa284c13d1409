"""The checks of P4 in the test's own process: their references, and the sizes that they draw."""

from __future__ import annotations

from collections import OrderedDict
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from mlhood.dataflow.nest import Nest, gemm
from mlhood.dataflow.slicing import analysis
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Problem, counts
from mlhood.dataflow.systolic import Array, Product, count, resnet_layers
from mlhood.grading.checks.submission import CheckContext, Session, Submission
from mlhood.grading.notebooks.notebook import read
from mlhood.grading.projects.collect import parameters_of, with_values
from mlhood.grading.projects.p4 import P4, open_task, table, traffic, xla
from mlhood.grading.projects.solution import Solution
from mlhood.grading.rpc.transport import LocalTransport
from tests.grading.projects.examples import edited
from tests.grading.projects.local_grading import graded, lost, names_in, result_of

ROOT = Path(__file__).parents[3]

SOLUTION = Solution("P4", P4.parameters)
SIZES = [(7, 5, 2, 2, 3), (12, 18, 1, 3, 2), (1, 4, 3, 8, 8), (9, 1, 1, 1, 4)]


def session(tmp_path, names: dict | None = None) -> Session:
    return Session(LocalTransport(names or {}), tmp_path, tmp_path)


def submission(tmp_path, names: dict | None = None, seed: int = 5) -> Submission:
    return Submission(session(tmp_path, names), CheckContext(np.random.default_rng(seed)))


# -- the orders


@pytest.mark.parametrize(("inputs", "weights", "slices", "k2", "k3"), SIZES)
def test_steps_are_sorted_by_slice_groups_and_tiles(inputs, weights, slices, k2, k3):
    c, i, f = np.indices((slices, inputs, weights)).reshape(3, -1)
    for order, stay, go in (("IS", i, f), ("WS", f, i)):
        want = np.stack([c, i, f], 1)[np.lexsort((go, stay, go // k2, stay // k3, c))]
        np.testing.assert_array_equal(SOLUTION("steps", order, inputs, weights, slices, k2, k3), want)


# -- traffic


class LruMemory:
    """A memory of a given capacity with least-recently-used replacement."""

    def __init__(self, capacity: int) -> None:
        self.capacity, self.tiles, self.loads = capacity, OrderedDict(), 0

    def use(self, tile: int) -> None:
        self.loads += tile not in self.tiles
        self.tiles[tile] = True
        self.tiles.move_to_end(tile)
        if len(self.tiles) > self.capacity:
            self.tiles.popitem(last=False)


def simulated_loads(staying: int, passing: int, k2: int, k3: int) -> dict[str, tuple[int, int]]:
    """Replay one slice in memories of the sizes that the nest assumes, and count the loads."""
    levels = {"L1": (1, 1), "L2": (1, k2), "L3": (k3, k2)}
    memories = {level: (LruMemory(stationary), LruMemory(streamed)) for level, (stationary, streamed) in levels.items()}
    for _, stay, go in SOLUTION("steps", "IS", staying, passing, 1, k2, k3):
        for stationary, streamed in memories.values():
            stationary.use(stay)
            streamed.use(go)
    return {level: (stationary.loads, streamed.loads) for level, (stationary, streamed) in memories.items()}


@pytest.mark.parametrize("seed", range(6))
def test_memories_with_lru_replacement_arrive_at_the_same_counts(seed, tmp_path):
    drawing = submission(tmp_path, seed=seed)
    for sizes in (*traffic.full_groups(drawing), *traffic.partial_groups(drawing)):
        assert SOLUTION("loads", *sizes) == simulated_loads(*sizes), sizes


# -- the analysis


def draw_problem(seed: int) -> tuple[Problem, Caches]:
    rng = np.random.default_rng(seed)
    filters, channels, window, tile = (int(rng.integers(*ends)) for ends in ((20, 300), (8, 300), (4, 20), (4, 20)))
    sizes = sorted(int(size) << 10 for size in rng.integers(8, 4000, 3))
    return Problem(filters, channels, (3, 3), (30, 25), window, tile), Caches((sizes[0], sizes[1], sizes[2]))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(5))
def test_needs_and_largest_agree_with_the_package(seed, order):
    problem, caches = draw_problem(seed)
    sizes = {"input": problem.input_bytes, "weight": problem.weight_bytes, "output": problem.output_bytes}
    tiles = problem.windows // problem.window, problem.filters // problem.filter_tile
    passing, staying = tiles if order == "WS" else tiles[::-1]
    got = SOLUTION("largest", order, problem.channels, passing, staying, sizes, caches.rooms)
    assert got == analysis.largest(problem, order, caches).tiles
    assert SOLUTION("needs", order, *got, sizes) == analysis.needs(problem, order, *got)


@pytest.mark.parametrize("seed", range(5))
def test_drawn_layers_allow_tiles_that_are_too_small_and_too_large(seed, tmp_path):
    problem = table._draw_problem(submission(tmp_path, seed=seed))
    for order in ORDERS:
        analysed = analysis.largest(problem, order, table.SMALL).tiles
        assert analysed[0] > 2
        needed = analysis.needs(problem, order, problem.channels, *counts(problem, order))
        assert any(need > room for need, room in zip(needed, table.SMALL.rooms, strict=True))


# -- systolic arrays


@pytest.mark.parametrize("dataflow", ["WS", "IS", "OS"])
@pytest.mark.parametrize(("rows", "columns", "m", "n", "k"), [(4, 8, 12, 24, 40), (16, 8, 3, 5, 2), (4, 4, 9, 5, 7)])
def test_the_solution_counts_the_packages_cycles(dataflow, rows, columns, m, n, k):
    counted = count(Product("product", m, n, k), Array(rows, columns, dataflow.lower()))
    assert SOLUTION("cycles", dataflow, rows, columns, m, n, k) == counted.cycles


def test_the_model_answer_about_wiring_an_array_says_what_the_package_counts():
    (answer,) = (cell.source for cell in read(ROOT / "P4.ipynb").cells if cell.id == "P4-11-question")
    for dataflow, rows, columns in (("os", 32, 32), ("ws", 32, 32), ("is", 32, 32), ("os", 16, 64)):
        total = sum(count(layer, Array(rows, columns, dataflow)).cycles for layer in resnet_layers())
        assert f"{total:,}" in answer
    small = [count(layer, Array(16, 16, "os")) for layer in resnet_layers()]  # four of them share each layer's folds
    assert f"{sum(counts.cycles for counts in small) // 4:,}" in answer


# -- the texts of XLA


def test_fused_computations_match_the_text():
    assert SOLUTION("fused", xla.text("mlp")) == {
        "fused_computation": ["dot"],
        "fused_computation.1": ["dot"],
        "fused_computation.2": ["broadcast", "add"],
        "fused_computation.3": ["broadcast", "add", "tanh"],
    }
    assert "dynamic-slice" in SOLUTION("fused", xla.text("embedding"))["fused_computation"]


FUSED_CONV = ("fused_computation", "fused_computation.1", "fused_computation.2")


def test_bytes_match_a_count_by_hand():
    image, weights, result = 8 * 14 * 14 * 4, 16 * 8 * 9 * 4, 16 * 14 * 14 * 4
    assert SOLUTION("moved", xla.text("conv")) == {
        "read": dict(zip(FUSED_CONV, (result + 16 * 4, weights, image), strict=True)),
        "written": dict(zip(FUSED_CONV, (result, weights, image), strict=True)),
    }
    assert SOLUTION("moved", xla.text("argmax"))["written"] == {"fused_computation": 2 * 8 * 4}


@pytest.mark.parametrize("layer", xla.LAYERS)
def test_renaming_changes_no_computation(layer):
    program = xla.text(layer)
    other = xla.renamed(program, np.random.default_rng(3))
    assert other != program
    assert sorted(SOLUTION("fused", other).values()) == sorted(SOLUTION("fused", program).values())


def test_a_wrong_steps_costs_only_its_own_points(tmp_path):
    names = names_in(edited("P4-2-solution", ("range(slices)", "range(1)")), edited("P4-2-solution-2"))
    messages = graded(names, tmp_path, "P4.2")
    assert messages["every_step_is_there_once"]
    assert messages["product_is_right"] == messages["slices_add_up"] == ""


# -- one mistake costs points only once


def test_a_wrong_needs_costs_only_its_own_points(tmp_path):
    names = names_in(edited("P4-4-solution", ("held + k2 * (streamed + out)", "held")), edited("P4-4-solution-2"))
    needs = names["needs"]
    messages = lost(names, tmp_path, "P4.4")
    assert list(messages) == ["l2_holds_passing_tiles"]
    assert names["needs"] is needs


def test_a_product_that_does_not_use_steps_fails(tmp_path):
    whole = "def sliced_product(columns, weights, *sizes):\n    return np.einsum('fct,ctp->fp', weights, columns)\n"
    messages = lost(names_in(edited("P4-2-solution"), {"product": whole}), tmp_path, "P4.2")
    assert list(messages) == ["product_is_right"]
    assert "computes from the steps" in messages["product_is_right"]


@pytest.mark.parametrize(
    ("right", "wrong"), [("window, filters):", "filters, window):"), ("slices, k2, k3):", "slices, k3, k2):")]
)
def test_swapped_sizes_are_noticed_in_the_calls_of_steps(right, wrong, tmp_path):
    names = names_in(edited("P4-2-solution"), edited("P4-2-solution-2", (right, wrong)))
    steps = names["steps"]
    messages = lost(names, tmp_path, "P4.2")
    assert list(messages) == ["product_is_right"]
    assert "`steps` is called with" in messages["product_is_right"]
    assert names["steps"] is steps


def test_the_product_may_be_computed_slice_by_slice(tmp_path):
    cell = """
def sliced_product(columns, weights, order, k1, k2, k3, window, filters):
    input_tiles, weight_tiles = -(-columns.shape[2] // window), -(-len(weights) // filters)
    y = {}
    for c in range(0, len(columns), k1):
        for _, i, f in steps(order, input_tiles, weight_tiles, slices=1, k2=k2, k3=k3):
            p, g = slice(i * window, (i + 1) * window), slice(f * filters, (f + 1) * filters)
            part = np.einsum("fct,ctp->fp", weights[g, c : c + k1], columns[c : c + k1, :, p])
            y[f, i] = y.get((f, i), 0) + part
    return np.block([[y[f, i] for i in range(input_tiles)] for f in range(weight_tiles)])
"""
    messages = graded(names_in(edited("P4-2-solution"), {"product": cell}), tmp_path, "P4.2")
    assert not any(messages.values()), messages


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize(
    ("change", "checks"),
    [
        (
            ("needs(order", "needs('IS'"),
            ["tiles_are_halved_until_they_fit", "an_exact_fit_fits"],
        ),
        (("> rooms[level]", "> int(rooms[level])"), ["the_papers_example_comes_out"]),
    ],
)
def test_an_ignored_order_and_infinite_capacities_are_noticed(change, checks, seed, tmp_path):
    messages = lost(names_in(edited("P4-4-solution"), edited("P4-4-solution-2", change)), tmp_path, "P4.4", seed=seed)
    assert list(messages) == checks


@pytest.mark.parametrize(
    "tiles", ["(problem.channels, k2, k3)", "(problem.channels, most[order][1], 1)", "(k1, k2, k3)"]
)
def test_all_tiles_are_taken_if_nothing_exceeds_a_cache(tiles, tmp_path):
    large = f"{{order: {tiles} for order, (k1, k2, k3) in analysed.items()}}"
    cell = edited("P4-5-solution", ('"too large": most', f'"too large": {large}'))
    messages = graded(names_in(cell), tmp_path, "P4.5")
    assert "exceeds no cache" in messages["too_large_breaks_a_cache"]


def variant_of(index: int) -> dict:
    """Return values of P4's parameters, none the default."""
    return {part.name: part.values[1 + index % (len(part.values) - 1)] for part in parameters_of(P4)}


def points_of(task, checks: slice, names: dict, tmp_path) -> list[bool]:
    """Return which of some checks of a task pass."""
    result = result_of(replace(task, checks=task.checks[checks]), names, tmp_path)
    return [bool(check.earned) for check in result.checks]


@pytest.mark.parametrize("index", range(3))
def test_the_rows_of_a_variant_are_graded_by_its_parameters(index, tmp_path):
    task, default = with_values(P4, variant_of(index)).task("P4.5"), P4.task("P4.5")
    assert task is not None
    assert default is not None
    names: dict = {"counts": counts, "table": SimpleNamespace(rows=(), columns=())}
    names |= {"layer": SimpleNamespace(macs=1), "compare": lambda calls, flops: None}
    exec(task.fallback, names)
    assert points_of(task, slice(4), names, tmp_path) == [True] * 4
    exec(default.fallback, names)
    assert points_of(task, slice(4), names, tmp_path) == [False] * 4


@pytest.mark.parametrize("index", range(3))
def test_a_variant_says_which_convolutions_run_in_slices(index, tmp_path):
    task = with_values(P4, variant_of(index)).task("P4.6")
    assert task is not None

    def every_3x3(order, tiles, asked):
        return SOLUTION("sliced_kernel", order, tiles)

    assert points_of(task, slice(3), {"sliced_kernel": every_3x3}, tmp_path) == [True, False, True]
    assert points_of(task, slice(3), {"sliced_kernel": SOLUTION.function("sliced_kernel")}, tmp_path) == [False] * 3


@pytest.mark.parametrize("index", range(3))
def test_the_order_of_a_variant_is_given_or_fixed(index, tmp_path):
    values = variant_of(index)
    task = with_values(P4, values).task("P4.7")
    assert task is not None

    def choose(problem, caches, order=values["order_of"]):
        return open_task.searched(problem, caches, order)[1:]

    assert points_of(task, slice(4), {"choose": choose}, tmp_path) == [True] * 4
    assert not any(points_of(task, slice(4), {"choose": open_task.searched}, tmp_path))


def test_a_nest_that_lists_other_visits_is_no_nest(tmp_path):
    scope = names_in(edited("P4-1-solution"), edited("P4-1-solution-2"))
    assert not any(graded(scope, tmp_path, "P4.1").values())

    class Listed(Nest):
        def visits(self):
            return scope["schedule"](gemm(8, 12, 16)).visits()

    messages = graded(scope | {"schedule": lambda nest: Listed(**vars(nest))}, tmp_path, "P4.1")
    assert "does not return a nest" in messages["blocks_are_taken_together"]
