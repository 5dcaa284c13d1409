"""Tight lifetimes: allocations right before the first use, deallocations right after the last."""

from tests.compiler.lir.building import program_of
from tests.compiler.lir.passes.applying import apply, body

PASS = "tighten_lifetimes"
ALLOCS = ["alloc %a : float32[2, 3]", "alloc %b : float32[2, 3]", "tensorview %v : float32[6] = %b"]
WORK = ["tanh @out %a, @in %x", "relu @out %y, @in %a", "relu @out %b, @in %x"]
USE = ["tensorview %w : float32[6] = %y", "elementadd @in %v, @inout %w"]


def program():
    return program_of(*ALLOCS, *WORK, *USE, "relu @inout %y", "dealloc %a", "dealloc %b")


def test_memory_and_views_are_there_from_the_first_to_the_last_use():
    (a, b, v), got = ALLOCS, body(apply(program(), PASS))
    work = [a, *WORK[:2], "dealloc %a", b, WORK[2], USE[0], v, USE[1], "dealloc %b", "relu @inout %y"]
    assert got == work


def test_a_view_sinks_after_what_it_is_a_view_of():
    views = ["alloc %a : float32[2, 3]", "tensorview %v : float32[6] = %a", "tensorview %w : float32[3, 2] = %v"]
    source = ["tensorview %s : float32[3, 2] = %x"]
    rest = ["copy @out %y, @in %x", "relu @out %w, @in %s", "elementadd @in %a, @inout %y", "dealloc %a"]
    got = body(apply(program_of(*views, *source, *rest), PASS))
    assert got == [rest[0], *views, *source, *rest[1:]]


def test_what_nothing_uses_is_removed():
    lines = ["tensorview %v : float32[6] = %x", "alloc %a : float32[2]", "copy @out %y, @in %x", "dealloc %a"]
    assert body(apply(program_of(*lines), PASS)) == [lines[2]]


def test_what_is_tight_stays():
    lines = [ALLOCS[0], *WORK[:2], "dealloc %a"]
    assert body(apply(program_of(*lines), PASS)) == lines
