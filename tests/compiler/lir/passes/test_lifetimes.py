"""Sinking of allocations and hoisting of deallocations."""

from tests.compiler.lir.building import program_of
from tests.compiler.lir.passes.applying import apply, before_and_after, body

SINK, HOIST = "sink_allocs", "hoist_deallocs"
ALLOCS = ["alloc %a : float32[2, 3]", "alloc %b : float32[2, 3]", "tensorview %v : float32[6] = %b"]
WORK = ["tanh @out %a, @in %x", "relu @out %y, @in %a", "relu @out %b, @in %x"]
USE = ["tensorview %w : float32[6] = %y", "elementadd @in %v, @inout %w"]


def program():
    return program_of(*ALLOCS, *WORK, *USE, "relu @inout %y", "dealloc %a", "dealloc %b")


def test_allocs_and_views_sink_to_the_first_use():
    a, b, v = ALLOCS
    assert body(apply(program(), SINK))[:8] == [a, *WORK[:2], b, WORK[2], USE[0], v, USE[1]]


def test_deallocs_rise_to_the_last_use_also_of_a_view():
    got = body(apply(program(), HOIST))
    assert got.index("dealloc %a") == got.index(WORK[1]) + 1
    assert got.index("dealloc %b") == got.index(USE[1]) + 1


def test_a_view_sinks_after_what_it_is_a_view_of():
    views = ["alloc %a : float32[2, 3]", "tensorview %v : float32[6] = %a", "tensorview %w : float32[3, 2] = %v"]
    source = ["tensorview %s : float32[3, 2] = %x"]
    rest = ["copy @out %y, @in %x", "relu @out %w, @in %s", "elementadd @in %a, @inout %y", "dealloc %a"]
    got = body(apply(program_of(*views, *source, *rest), SINK))
    assert got == [rest[0], *views, *source, *rest[1:]]


def test_a_view_that_nothing_uses_is_removed():
    lines = ["tensorview %v : float32[6] = %x", "copy @out %y, @in %x"]
    assert body(apply(program_of(*lines), SINK)) == lines[1:]


def test_what_is_tight_stays():
    lines = [ALLOCS[0], *WORK[:2], "dealloc %a"]
    for name in (SINK, HOIST):
        assert body(apply(program_of(*lines), name)) == lines


def test_sinking_golden(golden):
    golden("compiler/golden/lir/sink_allocs.txt", before_and_after(program(), SINK))


def test_hoisting_golden(golden):
    golden("compiler/golden/lir/hoist_deallocs.txt", before_and_after(program(), HOIST))
