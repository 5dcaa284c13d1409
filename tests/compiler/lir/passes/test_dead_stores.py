"""Dead store elimination."""

from mlhood.compiler.operators.pooling import MaxPool
from tests.compiler.lir.building import lowered, opcodes, program_of
from tests.compiler.lir.passes.applying import apply, body

PASS = "eliminate_dead_stores"
A, FREE = "alloc %a : float32[2, 3]", "dealloc %a"


def test_what_is_overwritten_before_it_is_read_is_not_computed():
    program = program_of("tanh @out %y, @in %x", "relu @out %y, @in %x")
    assert body(apply(program, PASS)) == ["relu @out %y, @in %x"]


def test_what_nothing_reads_is_not_computed_nor_what_only_it_reads():
    program = program_of(A, "tanh @out %a, @in %x", "relu @inout %a", FREE, "relu @out %y, @in %x")
    assert body(apply(program, PASS)) == ["relu @out %y, @in %x"]


def test_a_store_through_a_view_counts():
    lines = [A, "tensorview %v : float32[6] = %a", "tensorview %w : float32[6] = %x", "tanh @out %v, @in %w"]
    lines += ["copy @out %y, @in %a", FREE]
    assert body(apply(program_of(*lines), PASS)) == lines


def test_views_and_memory_that_nothing_uses():
    lines = [A, "tensorview %v : float32[6] = %a", "tensorview %w : float32[3, 2] = %v", FREE, "copy @out %y, @in %x"]
    assert opcodes(apply(program_of(*lines), PASS)) == ["copy"]


def test_an_instruction_stays_if_one_of_its_results_is_read():
    pool = MaxPool((2, 2), (2, 2), (0,) * 4, (1, 1), indices=True)
    program = lowered(lambda b: b.graph.add(pool, b.x(1, 1, 2, 2)).outputs[1])
    assert body(apply(program, PASS)) == body(program)
