"""Checks of what every pass over programs must preserve."""

from mlhood.compiler.lir.execute import Executor
from mlhood.compiler.lir.passes import PASSES
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.lir.verify import verify
from tests.compiler.lir.building import check_same_bits, inputs_for


def apply(before: Program, name: str, inputs=None) -> Program:
    """Run one pass to its fixed point, and check that the program stays valid and computes the same, bit for bit."""
    inputs = inputs_for(before) if inputs is None else inputs
    program = before.copy()
    changed = [PASSES[name](program)]
    while changed[-1]:
        verify(program)
        assert len(changed) < 10
        changed.append(PASSES[name](program))
    assert changed[0] == (to_text(program) != to_text(before)), "the pass must return whether it changed anything"
    assert program.weights == before.weights
    assert program.outputs == before.outputs
    check_same_bits(Executor(program).run(inputs), Executor(before).run(inputs))
    return program


def body(program: Program) -> list[str]:
    """Return the lines of the instructions."""
    return [line.strip() for line in to_text(program).partition("program {\n")[2].splitlines()[:-1]]
