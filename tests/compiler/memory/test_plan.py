"""Memory plans: valid by a check that is written in another way, good, and the same every time."""

from __future__ import annotations

import itertools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from mlhood.compiler.lir.program import Lifetime
from mlhood.compiler.memory.plan import MemoryPlan, live_bytes, plan
from mlhood.errors import CompilerError


def problem(*rows: tuple[int, int, int]) -> list[Lifetime]:
    return [Lifetime(f"b{i}", *row) for i, row in enumerate(rows)]


def assert_valid(made: MemoryPlan, alignment: int) -> None:
    """Paint every byte of the arena for each instruction: none may be painted twice."""
    assert all(offset >= 0 and offset % alignment == 0 for offset in made.offsets.values())
    steps = max((buffer.last for buffer in made.lifetimes), default=-1) + 1
    for step in range(steps):
        owner = np.full(made.bytes, -1)
        for number, buffer in enumerate(made.lifetimes):
            if buffer.first <= step <= buffer.last:
                part = owner[made.offsets[buffer.name] :][: buffer.bytes]
                assert len(part) == buffer.bytes
                assert (part == -1).all()
                part[:] = number
        assert (owner >= 0).sum() == live_bytes(made.lifetimes)[step]


@st.composite
def problems(draw):
    rows = draw(st.lists(st.tuples(st.integers(0, 40), st.integers(0, 12), st.integers(0, 12)), max_size=14))
    return problem(*((size, min(a, b), max(a, b)) for size, a, b in rows))


@settings(max_examples=200)
@given(problems(), st.sampled_from([1, 4, 64]))
def test_buffers_that_are_live_at_once_never_overlap(lifetimes, alignment):
    made = plan(lifetimes, alignment)
    assert_valid(made, alignment)
    assert made.bytes >= made.live_maximum
    assert made == plan(lifetimes, alignment)


def best_of_all_orders(lifetimes: list[Lifetime]) -> int:
    """The smallest arena: some order of placing each buffer as low as possible gives it."""
    sizes = []
    for order in itertools.permutations(lifetimes):
        offsets: dict[str, int] = {}
        for buffer in order:
            beside = [b for b in lifetimes if b.name in offsets and b.first <= buffer.last and buffer.first <= b.last]
            tops = [0, *(offsets[b.name] + b.bytes for b in beside)]
            offsets[buffer.name] = min(
                top
                for top in tops
                if all(top + buffer.bytes <= offsets[b.name] or top >= offsets[b.name] + b.bytes for b in beside)
            )
        sizes.append(max(offsets[b.name] + b.bytes for b in lifetimes))
    return min(sizes)


HARD = [
    problem((4, 0, 1), (6, 1, 2), (4, 2, 3), (2, 0, 3)),
    problem((3, 0, 2), (2, 1, 4), (3, 3, 5), (5, 4, 6), (1, 0, 6)),
    problem((10, 0, 1), (5, 1, 3), (10, 2, 4), (5, 3, 5), (10, 5, 6), (1, 0, 6)),
    problem((7, 0, 3), (5, 2, 5), (7, 4, 7), (5, 6, 9), (2, 0, 9), (3, 3, 4)),
    problem((1, 0, 6), (2, 1, 2), (3, 2, 3), (4, 3, 4), (5, 4, 5), (6, 5, 6)),
]


@pytest.mark.parametrize("lifetimes", HARD)
def test_hard_cases_are_solved_as_well_as_by_trying_all_orders(lifetimes):
    made = plan(lifetimes, 1)
    assert_valid(made, 1)
    assert made.bytes == best_of_all_orders(lifetimes)


def test_a_chain_needs_its_two_largest_neighbours():
    sizes = [5, 8, 3, 9, 2, 7]
    made = plan(problem(*((size, i, i + 1) for i, size in enumerate(sizes))), 1)
    assert made.bytes == made.live_maximum == 13
    assert made.efficiency == 1


def test_random_graphs_of_a_thousand_buffers_are_planned_well():
    rng = np.random.default_rng(0)
    first = np.sort(rng.integers(0, 1000, 1000))
    last = first + rng.integers(1, 30, 1000)
    sizes = rng.integers(1, 100, 1000) * 64
    rows = zip(sizes.tolist(), first.tolist(), last.tolist(), strict=True)
    made = plan([Lifetime(f"b{i}", *row) for i, row in enumerate(rows)])
    assert 1 / 1.2 < made.efficiency <= 1


def test_nothing_needs_no_memory():
    assert plan([]).bytes == 0
    assert plan(problem((0, 0, 3), (0, 1, 2))).bytes == 0
    assert plan([]).efficiency == 1


def test_the_text_names_every_buffer_with_its_place():
    text = str(plan(problem((64, 0, 2), (128, 1, 2), (64, 3, 4))))
    assert "3 buffers of 256 bytes in an arena of 192, at most 192 live: efficiency 1.000" in text
    assert len(text.splitlines()) == 4


@pytest.mark.parametrize(
    ("lifetimes", "alignment", "message"),
    [
        (problem((4, 0, 1)), 0, "alignment"),
        (problem((-4, 0, 1)), 1, "b0"),
        (problem((4, 2, 1)), 1, "b0"),
        (problem((4, 0, 1)) * 2, 1, "one name"),
    ],
)
def test_invalid_problems_are_refused(lifetimes, alignment, message):
    with pytest.raises(CompilerError, match=message):
        plan(lifetimes, alignment)
