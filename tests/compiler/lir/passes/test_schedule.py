"""Scheduling: the order that needs less memory, whatever depends on what."""

from hypothesis import given
from hypothesis import strategies as st

from mlhood.compiler.lir.passes import optimize, schedule
from mlhood.compiler.memory.plan import live_bytes
from tests.compiler.lir.building import computed, program_of
from tests.compiler.lir.passes.applying import apply
from tests.compiler.lir.passes.random_programs import programs
from tests.compiler.lir.passes.test_lir_passes import RANDOM

PASS = "schedule_instructions"


def peak(program):
    return int(live_bytes(optimize(program, ["tighten_lifetimes"]).lifetimes()).max(initial=0))


def program():
    """Two branches that grow and shrink, with both grown at once."""
    lines = [f"alloc %{name} : float32[6, 2, 3]" for name in ("p", "q")]
    lines += [f"alloc %{name} : float32[2, 3]" for name in ("r", "s")]
    lines += ["tensorview %x1 : float32[1, 2, 3] = %x"]
    lines += [f"concat @out %{name}, {', '.join(['@in %x1'] * 6)} {{axis=0}}" for name in ("p", "q")]
    for big, small in (("p", "r"), ("q", "s")):
        lines += [f"extracttensor @out %{small}.1, @in %{big} {{starts=[0], stops=[1], axes=[0], steps=[1]}}"]
    lines[4:4] = [f"tensorview %{name}.1 : float32[1, 2, 3] = %{name}" for name in ("r", "s")]
    lines += ["elementadd @out %y, @in %r, @in %s"]
    return program_of(*lines, *(f"dealloc %{name}" for name in "pqrs"))


def test_branches_are_computed_one_after_the_other():
    before = program()
    after = apply(before, PASS)
    assert computed(before) == ["Concat", "Concat", "Slice", "Slice", "Add"]
    assert computed(after) == ["Concat", "Slice", "Concat", "Slice", "Add"]
    assert peak(after) < 0.7 * peak(before)


def test_an_order_that_needs_no_less_memory_stays():
    after = apply(program(), PASS)
    assert not schedule.schedule_instructions(after)
    lines = ["alloc %a : float32[2, 3]", "tanh @out %a, @in %x", "relu @out %y, @in %a", "dealloc %a"]
    assert not schedule.schedule_instructions(program_of(*lines))


def test_long_programs_are_left_alone(monkeypatch):
    monkeypatch.setattr(schedule, "MAX_INSTRUCTIONS", 4)
    assert not schedule.schedule_instructions(program())


@RANDOM
@given(programs())
def test_memory_that_is_written_again_keeps_its_order(example):
    """Random programs write their buffers again and again: reads stay between the same two writes."""
    before = optimize(example, ["tighten_lifetimes"])
    assert peak(apply(before, PASS)) <= peak(before)


@RANDOM
@given(st.data())
def test_a_tree_needs_no_more_than_the_greedy_order_of_its_leaves(data):
    order = data.draw(st.permutations(range(4)))
    lines = [f"alloc %{name} : float32[2, 3]" for name in ("a0", "a1", "a2", "a3", "b0", "b1")]
    lines += [f"tanh @out %a{i}, @in %x" for i in order]
    lines += ["elementadd @out %b0, @in %a0, @in %a1", "elementadd @out %b1, @in %a2, @in %a3"]
    lines += ["elementadd @out %y, @in %b0, @in %b1"]
    example = program_of(*lines, *(f"dealloc %{name}" for name in ("a0", "a1", "a2", "a3", "b0", "b1")))
    assert peak(apply(example, PASS)) <= 4 * 24
