"""The oracle of the LIR: it agrees with the interpreter bit for bit, and shows reads of memory that was taken over."""

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings

import mlhood
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.lir.execute import Executor, execute
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.arithmetic import Add
from mlhood.compiler.operators.movement import Gather, Transpose
from mlhood.compiler.operators.shape import Reshape
from mlhood.errors import CompilerError
from mlhood.models import digits
from tests.compiler.lir.building import check_against_graph, check_same_bits, lower_static, lowered, program_of
from tests.compiler.passes.building import Neg, Tanh, built
from tests.compiler.random_models import BATCH, models


@pytest.mark.parametrize("quantization", [None, "asymmetric", "symmetric", "symmetric_unsigned", "power_of_two"])
def test_lenet(lenet_onnx, quantization):
    images = digits().test_images[:10]
    stage = "quantized" if quantization else "hir"
    graph = mlhood.compile(lenet_onnx, quantization=quantization, stop_after=stage)
    actual = Executor(lower(graph, {"batch": 10})).run({"image": images})
    check_same_bits(actual, Interpreter(graph).run({"image": images}))


@settings(max_examples=60, suppress_health_check=list(HealthCheck))
@given(models())
def test_random_models(example):
    model, x = example
    graph = import_model(model)
    check_against_graph(
        lower(graph, {"n": BATCH} if x.shape != graph.placeholders["x"].type.shape else None), graph, {"x": x}
    )


SMALL = {
    "no elements": lambda b: b(Tanh(), b.x(0, 3)),
    "no axes": lambda b: b(Reshape(()), b(Neg(), b.x(1))),
    "integers": lambda b: b(Neg(), b.x(3, element="int8")),
    "booleans": lambda b: b(Reshape((2, 2)), b.x(4, element="bool")),
    "an input as output": lambda b: b.x(2),
    "a transposed constant": lambda b: b(Add(), b.x(3, 2), b.constant(np.arange(6, dtype=np.float32).reshape(2, 3).T)),
    "a transpose": lambda b: b(Reshape((6,)), b(Transpose((1, 0)), b.x(2, 3))),
}


@pytest.mark.parametrize("make", SMALL.values(), ids=SMALL)
def test_small_graphs(make):
    check_against_graph(lowered(make), built(make))


def test_a_constant_in_another_byte_order():
    numbers = np.arange(4, dtype=">f4")
    program = lowered(lambda b: b.constant(numbers))
    np.testing.assert_array_equal(execute(program)["y"], numbers)
    view = lowered(lambda b: b(Reshape((2, 2)), b.constant(numbers)))
    np.testing.assert_array_equal(execute(view)["y"], numbers.reshape(2, 2))


# -- memory

TWO = [
    *("alloc %a : float32[2, 3]", "relu @out %a, @in %x", "alloc %b : float32[2, 3]", "tanh @out %b, @in %x"),
    *("elementadd @out %y, @in %a, @in %b", "dealloc %a", "dealloc %b"),
]
X = np.float32([[1, 2, 3], [4, 5, 6]])


@pytest.mark.parametrize("offsets", [{"a": 0, "b": 24}, {"a": 24, "b": 0}, {"a": 3, "b": 64}])
def test_a_memory_plan_is_executed(offsets):
    check_same_bits(execute(program_of(*TWO), offsets, x=X), execute(program_of(*TWO), x=X))


@pytest.mark.parametrize("offsets", [{"a": 0, "b": 0}, {"a": 0, "b": 20}, {"a": 12, "b": 0}])
def test_overlapping_buffers_show(offsets):
    assert not np.array_equal(execute(program_of(*TWO), offsets, x=X)["y"], execute(program_of(*TWO), x=X)["y"])


def test_memory_that_is_freed_too_early_by_a_plan_shows_as_nan():
    lines = [*TWO[:3], "tanh @out %b, @in %x", "dealloc %b", "relu @out %y, @in %a", "dealloc %a"]
    assert np.isnan(execute(program_of(*lines), {"a": 0, "b": 0}, x=X)["y"]).all()


def test_buffers_that_are_not_alive_together_may_share_memory():
    lines = [*TWO[:2], "relu @out %y, @in %a", "dealloc %a", "alloc %b : float32[2, 3]", "tanh @out %b, @in %y"]
    program = program_of(*lines, "elementadd @in %b, @inout %y", "dealloc %b")
    check_same_bits(execute(program, {"a": 0, "b": 0}, x=X), execute(program, x=X))
    assert Executor(program, {"a": 0, "b": 0}).arena_bytes == 24


def test_the_inputs_stay_as_they_are():
    x = X.copy()
    got = execute(program_of("copy @out %y, @in %x", "tanh @inout %y"), x=x)["y"]
    np.testing.assert_array_equal(x, X)
    np.testing.assert_array_equal(got, np.tanh(X))


def test_each_write_can_be_observed():
    seen = []
    Executor(program_of(*TWO)).run({"x": X}, lambda buffer, array: seen.append((buffer.name, array[0, 0].item())))
    assert [name for name, _ in seen] == ["a", "b", "y"]
    assert seen[0][1] == 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"offsets": {"a": 0}}, "no valid offset"),
        ({"offsets": {"a": 0, "b": -4}}, "no valid offset"),
        ({"offsets": {"a": 0, "b": 0.5}}, "no valid offset"),
        ({"limit": 10}, "more memory than the limit"),
    ],
)
def test_invalid_plans_and_limits_raise(arguments, message):
    with pytest.raises(CompilerError, match=message):
        Executor(program_of(*TWO), **arguments)


def test_a_program_with_dynamic_axes_cannot_run():
    with pytest.raises(CompilerError, match="dynamic axes") as caught:
        Executor(lower(built(lambda b: b(Tanh(), b.x("n", 2)))))
    assert "lower(graph, {'n': 1})" in str(caught.value)


def test_an_operator_that_fails_is_named_with_its_instruction():
    def make(b):
        return b(Gather(0), b.x(3), b.x(2, name="i", element="int64"))

    program = lower_static(built(make))
    with pytest.raises(CompilerError) as caught:
        Executor(program).run({"x": np.zeros(3, np.float32), "i": np.array([0, 9])})
    assert caught.value.parts["where"].startswith("instruction 1: gather @out")
