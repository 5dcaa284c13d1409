"""Programs with dynamic axes: for each length what the interpreter computes, and nothing anew that stays the same."""

import numpy as np
import onnx.parser
import pytest

from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.lir.execute import Executor
from mlhood.compiler.lir.lowering import DynamicProgram
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.passes import optimize

TEXT = """
<ir_version: 8, opset_import: ["" : 17]>
network (float[n, 6] x, float[m, 6] past, float[2, 6] z) => (y, present, halves, same)
<int64[1] zero = {0}, int64[1] one = {1}, int64[1] two = {2}, int64[1] three = {3}>
{
  present = Concat<axis = 0>(past, x)
  first = Shape<start = 0, end = 1>(past)
  last = Add(first, one)
  row = Slice(present, first, last, zero)
  n = Shape<start = 0, end = 1>(x)
  wanted = Concat<axis = 0>(n, two, three)
  halves = Reshape(x, wanted)
  y = Add(x, row)
  negated = Neg(z)
  same = Tanh(negated)
}
"""


@pytest.fixture(scope="module")
def graph():
    return optimize(import_model(onnx.parser.parse_model(TEXT)))


def drawn(n, m):
    draw = np.random.default_rng(n)
    return {name: draw.standard_normal((rows, 6), np.float32) for name, rows in (("x", n), ("past", m), ("z", 2))}


def test_each_length_gives_what_the_interpreter_gives(graph):
    dynamic = DynamicProgram(graph)
    for n, m in [(3, 4), (3, 5), (1, 5), (3, 4), (2, 9)]:
        inputs = drawn(n, m)
        program = dynamic.with_lengths({"n": n, "m": m})
        assert program is not None
        results = Executor(program).run(inputs)
        for name, expected in Interpreter(graph).run(inputs).items():
            np.testing.assert_array_equal(results[name], expected)


def test_instructions_that_do_not_depend_on_a_length_stay(graph):
    dynamic = DynamicProgram(graph)
    programs = [dynamic.with_lengths({"n": 3, "m": m}) for m in (4, 5)]
    before, after = (
        {each.writes[0].name: each for each in program.instructions if each.writes} for program in programs if program
    )
    kept = {name for name in before if before[name] is after[name]}
    assert {"same", "halves"} <= kept
    assert not {"present", "row"} & kept


def test_lengths_that_do_not_fit_have_no_program(graph):
    broken = TEXT.replace("float[2, 6] z", "float[k, 6] z").replace("Neg(z)", "Add(z, x)")
    dynamic = DynamicProgram(optimize(import_model(onnx.parser.parse_model(broken))))
    assert dynamic.with_lengths({"n": 3, "m": 4, "k": 3}) is not None
    assert dynamic.with_lengths({"n": 3, "m": 4, "k": 2}) is None
