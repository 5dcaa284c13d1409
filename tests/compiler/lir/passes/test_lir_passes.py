"""All passes over programs together: random programs, networks, and long chains."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

import mlhood
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.lir.execute import Executor
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import PASSES, optimize
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.lir.verify import verify
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.elementwise import Relu
from mlhood.compiler.passes import optimize as optimize_graph
from mlhood.errors import CompilerError
from mlhood.models import digits
from tests.compiler.lir.building import check_same_bits, inputs_for, lower_static, lowered, opcodes, program_of
from tests.compiler.lir.passes.applying import apply, body
from tests.compiler.lir.passes.random_programs import programs
from tests.compiler.passes.building import Tanh
from tests.compiler.random_models import BATCH, models

RANDOM = settings(max_examples=60, suppress_health_check=list(HealthCheck))
orders = st.permutations(list(PASSES))


@RANDOM
@given(models(), orders)
def test_random_models_in_any_order_of_passes(example, order):
    model, x = example
    program = lower_static(import_model(model), n=BATCH)
    for name in order:
        program = apply(program, name, {"x": x})
    assert len(program.lifetimes()) <= len(lower_static(import_model(model), n=BATCH).lifetimes())


@RANDOM
@given(programs(), orders)
def test_random_programs_in_any_order_of_passes(program, order):
    for name in order:
        program = apply(program, name)


@RANDOM
@given(programs(), st.data())
def test_what_the_verifier_accepts_reads_no_undefined_memory(program, data):
    """Programs of which an instruction was removed or moved are refused, or give numbers."""
    broken = program.copy()
    moved = broken.instructions.pop(data.draw(st.integers(0, len(broken.instructions) - 1)))
    if data.draw(st.booleans()):
        broken.instructions.insert(data.draw(st.integers(0, len(broken.instructions))), moved)
    try:
        verify(broken)
    except CompilerError:
        return
    results = Executor(broken).run(inputs_for(broken))
    assert all(np.isfinite(array).all() for array in results.values())


@RANDOM
@given(models())
def test_memory_is_shared_as_the_lifetimes_allow(example):
    """A plan that puts buffers at the lowest free place, as their lifetimes say, gives the same results."""
    model, x = example
    for program in (before := lower_static(import_model(model), n=BATCH), optimize(before)):
        offsets = first_fit(program.lifetimes())
        check_same_bits(Executor(program, offsets).run({"x": x}), Executor(program).run({"x": x}))


def first_fit(lifetimes) -> dict[str, int]:
    """Return an offset for each buffer: the lowest at which it overlaps no other that is alive at the same time."""
    placed = []
    for lifetime in lifetimes:
        others = [
            (at, each.bytes) for at, each in placed if each.first <= lifetime.last and lifetime.first <= each.last
        ]
        starts = [0, *sorted(at + size for at, size in others)]
        fits = (s for s in starts if all(s + lifetime.bytes <= at or at + size <= s for at, size in others))
        placed.append((next(fits), lifetime))
    return {lifetime.name: at for at, lifetime in placed}


@RANDOM
@given(programs())
def test_optimisation_preserves_the_outputs_and_is_idempotent(program):
    optimized = optimize(program, check=True)
    inputs = inputs_for(program)
    check_same_bits(Executor(optimized).run(inputs), Executor(program).run(inputs))
    assert to_text(optimize(optimized)) == to_text(optimized)
    assert sum(each.bytes for each in optimized.lifetimes()) <= sum(each.bytes for each in program.lifetimes())


@pytest.mark.parametrize("quantization", [None, "power_of_two"])
def test_lenet(lenet_onnx, quantization):
    images = digits().test_images[:5]
    graph = mlhood.compile(lenet_onnx, quantization=quantization, stop_after="quantized" if quantization else "hir")
    before = lower(graph, {"batch": 5})
    program = optimize(before, check=True)
    assert "copy" not in opcodes(program)
    assert len(program.lifetimes()) < len(before.lifetimes())
    check_same_bits(Executor(program).run({"image": images}), Interpreter(graph).run({"image": images}))


def test_lenet_as_text(golden, lenet_onnx):
    """The instructions before and after; the constants depend on the machine."""
    before = lower(optimize_graph(import_model(lenet_onnx)), {"batch": 1})
    texts = ["\n".join(body(program)) for program in (before, optimize(before))]
    golden("compiler/golden/lir/lenet.txt", "# before\n{}\n\n# after\n{}\n".format(*texts))


def test_a_long_chain_takes_a_few_rounds():
    def make(b):
        x = b.x(2)
        for i in range(5000):
            x = b([Relu(), Tanh()][i % 2], x)
        return x

    changes = []
    program = optimize(lowered(make), observe=lambda name, program: changes.append(name))
    assert opcodes(program) == ["relu", "tanh"] * 2500
    assert not program.lifetimes()
    assert len(changes) <= 6


def test_the_argument_is_not_modified_and_selected_passes_run():
    program = lowered(lambda b: b(Relu(), b(Tanh(), b.x(2))))
    text = to_text(program)
    assert opcodes(optimize(program, ["eliminate_copies"])) == ["alloc", "tanh", "relu", "dealloc"]
    assert opcodes(optimize(program)) == ["tanh", "relu"]
    assert to_text(optimize(program, [])) == to_text(program) == text


def test_an_invalid_program_is_detected_after_the_pass(monkeypatch):
    def corrupt(program):
        program.instructions = []
        return True

    monkeypatch.setitem(PASSES, "corrupt", corrupt)
    with pytest.raises(CompilerError, match="never written"):
        optimize(program_of("relu @out %y, @in %x"), ["corrupt"], check=True)
