"""The checks of P4 in this process: what they compare with, and the sizes that they ask about."""

from __future__ import annotations

import math
from collections import OrderedDict

import numpy as np
import pytest

from mlhood.dataflow.slicing import analysis, fit
from mlhood.dataflow.slicing.caches import Caches
from mlhood.dataflow.slicing.problem import ORDERS, Problem
from mlhood.grading.checks.marks import judge
from mlhood.grading.checks.submission import LocalTransport, Submission
from mlhood.grading.projects.p4 import P4, reference, table, traffic, xla
from tests.grading.projects import p4_snippets

SIZES = [(7, 5, 2, 2, 3), (12, 18, 1, 3, 2), (1, 4, 3, 8, 8), (9, 1, 1, 1, 4)]


def submission(tmp_path, names: dict | None = None, seed: int = 5) -> Submission:
    found = Submission(LocalTransport(names or {}), tmp_path, tmp_path)
    found.rng = np.random.default_rng(seed)
    return found


def judged(names: dict, tmp_path, task: str, seed: int = 5) -> dict[str, str]:
    """What each check of a task says of the names of a notebook; empty where it passes."""
    wanted = P4.task(task)
    assert wanted is not None
    result = judge(wanted, submission(tmp_path, names, seed), seed)
    return {check.name: " ".join([check.what, *check.parts.values()]) for check in result.checks}


def names_in(*cells: dict[str, str]) -> dict:
    names = {"np": np}
    for cell in cells:
        for source in cell.values():
            exec(source, names)
    return names


# -- the orders


@pytest.mark.parametrize(("inputs", "weights", "slices", "k2", "k3"), SIZES)
def test_steps_are_sorted_by_slice_groups_and_tiles(inputs, weights, slices, k2, k3):
    number, i, f = np.indices((slices, inputs, weights)).reshape(3, -1)
    for order, stays, passes in (("IS", i, f), ("WS", f, i)):
        want = np.stack([number, i, f], 1)[np.lexsort((passes, stays, passes // k2, stays // k3, number))]
        np.testing.assert_array_equal(reference.steps(order, inputs, weights, slices, k2, k3), want)


@pytest.mark.parametrize("order", ORDERS)
def test_the_sliced_product_is_the_product(order):
    rng = np.random.default_rng(1)
    columns, weights = (rng.standard_normal(shape).astype(np.float32) for shape in ((7, 4, 13), (9, 7, 4)))
    got = reference.sliced_product(columns, weights, order, 3, 2, 2, 4, 5)
    want = weights.reshape(9, -1) @ columns.reshape(-1, 13)
    np.testing.assert_allclose(got, want, rtol=1e-4, atol=1e-5)


# -- traffic


class Memory:
    """Keeps as many things as it has room for: those that were used last."""

    def __init__(self, room: int) -> None:
        self.room, self.held, self.loads = room, OrderedDict(), 0

    def use(self, thing: int) -> None:
        self.loads += thing not in self.held
        self.held[thing] = True
        self.held.move_to_end(thing)
        if len(self.held) > self.room:
            self.held.popitem(last=False)


def played(staying: int, passing: int, k2: int, k3: int) -> dict[str, tuple[int, int]]:
    """Play one slice to memories that hold what the nest wants them to, and count what comes in."""
    levels = {"L1": (1, 1), "L2": (1, k2), "L3": (k3, k2)}
    memories = {level: (Memory(stay), Memory(go)) for level, (stay, go) in levels.items()}
    for _, stays, passes in reference.steps("IS", staying, passing, 1, k2, k3):
        for stay, go in memories.values():
            stay.use(stays)
            go.use(passes)
    return {level: (stay.loads, go.loads) for level, (stay, go) in memories.items()}


@pytest.mark.parametrize("seed", range(20))
def test_memories_that_keep_what_was_used_last_come_to_the_same_counts(seed, tmp_path):
    asked = submission(tmp_path, seed=seed)
    for sizes in (*traffic.full_groups(asked), *traffic.smaller_groups(asked)):
        assert reference.loads(*sizes) == played(*sizes), sizes


def test_single_tiles_and_single_groups_are_fetched_again_all_the_same():
    alone = 6, 4, 2, 1  # a group of one staying tile meets the next group at once: a memory would still have it
    assert reference.loads(*alone)["L1"] == (12, 24)
    assert played(*alone)["L1"] == (6, 24)
    whole = 6, 4, 4, 3  # one group of passing tiles is there for every group of staying ones
    assert reference.loads(*whole)["L2"] == (6, 8)
    assert played(*whole)["L2"] == (6, 4)


# -- the analysis


def draw(seed: int) -> tuple[Problem, Caches]:
    rng = np.random.default_rng(seed)
    filters, channels, window, tile = (int(rng.integers(*ends)) for ends in ((20, 300), (8, 300), (4, 20), (4, 20)))
    sizes = sorted(int(size) << 10 for size in rng.integers(8, 4000, 3))
    return Problem(filters, channels, (3, 3), (30, 25), window, tile), Caches((sizes[0], sizes[1], sizes[2]))


@pytest.mark.parametrize("order", ORDERS)
@pytest.mark.parametrize("seed", range(15))
def test_needs_and_largest_are_those_of_the_analysis(seed, order):
    problem, caches = draw(seed)
    sizes = {"input": problem.input_bytes, "weight": problem.weight_bytes, "output": problem.output_bytes}
    tiles = problem.windows // problem.window, problem.filters // problem.filter_tile
    passing, staying = tiles if order == "WS" else tiles[::-1]
    got = reference.largest(order, problem.channels, passing, staying, sizes, caches.rooms)
    assert got == analysis.largest(problem, order, caches).tiles
    assert reference.needs(order, *got, sizes) == fit.needs(problem, order, *got)


def test_tiles_that_never_fit_are_an_error():
    with pytest.raises(ValueError, match="L2"):
        reference.largest("IS", 1, 1, 1, {"input": 4, "weight": 4, "output": 4}, (12, 11, 12))


@pytest.mark.parametrize("seed", range(15))
def test_the_layers_drawn_have_something_too_small_and_something_too_large(seed, tmp_path):
    problem = table._problem(submission(tmp_path, seed=seed))
    for order in ORDERS:
        analysed = analysis.largest(problem, order, table.SMALL).tiles
        rows = reference.triples(dict.fromkeys(ORDERS, analysed), problem, table.SMALL)
        assert analysed[0] > 2
        needed = fit.needs(problem, order, *rows["too large"][order])
        assert any(need > room for need, room in zip(needed, table.SMALL.rooms, strict=True))


# -- the texts of XLA


def test_operations_are_those_that_one_can_count_by_hand():
    assert xla.operations(xla.text("conv", "stablehlo")) == {
        "convolution": 1, "broadcast_in_dim": 4, "add": 1, "constant": 1, "maximum": 1,
    }  # fmt: skip
    assert xla.operations(xla.text("pool", "stablehlo")) == {
        "reduce_window": 1, "constant": 2, "broadcast_in_dim": 2, "maximum": 2,
    }  # fmt: skip
    assert xla.operations(xla.text("embedding", "stablehlo"))["gather"] == 1


def test_fused_computations_are_those_that_one_can_read():
    found = xla.fused(xla.text("mlp", "hlo"))
    assert found == {
        "fused_computation": ["dot"],
        "fused_computation.1": ["dot"],
        "fused_computation.2": ["broadcast", "add"],
        "fused_computation.3": ["broadcast", "add", "tanh"],
    }
    assert "dynamic-slice" in xla.fused(xla.text("embedding", "hlo"))["fused_computation"]


@pytest.mark.parametrize("layer", xla.LAYERS)
def test_other_names_change_no_computation(layer):
    program = xla.text(layer, "hlo")
    other = xla.renamed(program, np.random.default_rng(3))
    assert other != program
    assert sorted(xla.fused(other).values()) == sorted(xla.fused(program).values())


# -- one mistake, one price


def test_a_wrong_steps_costs_only_its_own_points(tmp_path):
    said = judged(
        names_in(p4_snippets.stepping(slices="for c in range(1)"), p4_snippets.multiplying()), tmp_path, "P4.2"
    )
    assert said["every_step_is_there_once"]
    assert said["product_is_right"] == said["slices_add_up"] == ""


def test_a_wrong_needs_costs_only_its_own_points(tmp_path):
    names = names_in(p4_snippets.needing(l2="stay"), p4_snippets.halving())
    mine = names["needs"]
    said = judged(names, tmp_path, "P4.4")
    assert [name for name, why in said.items() if why] == ["l2_holds_passing_tiles"]
    assert names["needs"] is mine


def test_a_product_that_goes_through_no_steps_is_no_sliced_one(tmp_path):
    whole = "def sliced_product(columns, weights, *sizes):\n    return np.einsum('fct,ctp->fp', weights, columns)\n"
    said = judged(names_in(p4_snippets.stepping(), {"product": whole}), tmp_path, "P4.2")
    assert [name for name, why in said.items() if why] == ["product_is_right"]
    assert "does not go through `steps`" in said["product_is_right"]


@pytest.mark.parametrize(("right", "wrong"), [("window, filters):", "filters, window):"), ("k2, k3):", "k3, k2):")])
def test_sizes_that_change_places_are_seen_in_what_is_asked_of_steps(right, wrong, tmp_path):
    head, loop, body = p4_snippets.multiplying()["P4-2-solution-2"].partition("\n")
    cell = {"product": head.replace(right, wrong) + loop + (body.replace(right, wrong) if "k2" in right else body)}
    names = names_in(p4_snippets.stepping(), cell)
    mine = names["steps"]
    said = judged(names, tmp_path, "P4.2")
    assert [name for name, why in said.items() if why] == ["product_is_right"]
    assert "asks for other steps" in said["product_is_right"]
    assert names["steps"] is mine


def test_tiles_of_the_product_may_be_gathered_slice_by_slice(tmp_path):
    cell = """
def sliced_product(columns, weights, order, k1, k2, k3, window, filters):
    inputs, some = -(-columns.shape[2] // window), -(-len(weights) // filters)
    y = {}
    for c in range(0, len(columns), k1):
        for _, i, f in steps(order=order, inputs=inputs, weights=some, slices=1, k2=k2, k3=k3):
            p, g = slice(i * window, (i + 1) * window), slice(f * filters, (f + 1) * filters)
            part = np.einsum("fct,ctp->fp", weights[g, c : c + k1], columns[c : c + k1, :, p])
            y[f, i] = y.get((f, i), 0) + part
    return np.block([[y[f, i] for i in range(inputs)] for f in range(some)])
"""
    said = judged(names_in(p4_snippets.stepping(), {"product": cell}), tmp_path, "P4.2")
    assert not any(said.values()), said


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize(
    ("fits", "check"),
    [
        ("needs('IS', *found, sizes)[level] <= rooms[level]", "tiles_are_halved_until_they_fit"),
        ("needs(order, *found, sizes)[level] <= int(rooms[level])", "the_papers_example_comes_out"),
    ],
)
def test_an_order_that_is_left_out_and_rooms_without_end_are_seen(fits, check, seed, tmp_path):
    said = judged(names_in(p4_snippets.needing(), p4_snippets.halving(fits=fits)), tmp_path, "P4.4", seed)
    assert [name for name, why in said.items() if why] == [check]


def test_where_nothing_breaks_a_cache_any_tiles_are_too_large(tmp_path):
    cell = p4_snippets.choosing(large="(problem.channels, k2, k3)")
    said = judged(names_in(cell), tmp_path, "P4.5")
    assert said["too_large_breaks_a_cache"] == ""


def test_operations_in_another_order_are_told_from_other_operations(tmp_path):
    cell = p4_snippets.fusing()["P4-7-solution-2"].replace(
        "return found", "return {n: v[::-1] for n, v in found.items()}"
    )
    said = judged(names_in(p4_snippets.naming(), {"fused": cell}), tmp_path, "P4.7")
    assert [name for name, why in said.items() if why] == ["opcodes_are_listed"]
    assert "in another order" in said["opcodes_are_listed"]


FUNCTIONS = ("visits", "schedule", "steps", "sliced_product", "loads", "needs", "largest", "triples", "cycles",
             "utilisation", "operations", "fused")  # fmt: skip


@pytest.mark.parametrize(
    "answer", [None, "no", [1, [2]], {"a": 1}, math.nan, (), np.zeros((0, 0)), np.array("x"), {"L1": None, 3: []}]
)
@pytest.mark.parametrize("task", [task.id for task in P4.tasks])
def test_nonsense_passes_no_check_and_breaks_none(task, answer, tmp_path):
    said = judged(dict.fromkeys(FUNCTIONS, lambda *arguments: answer), tmp_path, task)
    assert all(said.values()), said
    assert not any("cannot make sense" in reason for reason in said.values())
