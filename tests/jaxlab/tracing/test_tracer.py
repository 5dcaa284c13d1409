"""The toy tracer: what it writes down is what the function does, on arrays and in JAX's own eyes."""

import jax
import jax.numpy as jnp
import numpy as np
import pytest

from mlhood.jaxlab.tracing import tracer
from mlhood.jaxlab.tracing.tracer import (
    NUMPY,
    SHAPES,
    Equation,
    Program,
    TraceError,
    Variable,
    evaluate,
    fresh,
    live,
    trace,
)

DRAW = np.random.default_rng(0)


def network(x, w, bias):
    return tracer.relu(x @ w + bias) * 2.0


def loss(x, w, bias):
    scores = network(x, w, bias) - 1
    return tracer.log(tracer.sum(tracer.exp(-scores)) / 3), (scores**2).sum()


def arrays(*shapes):
    return [DRAW.standard_normal(shape).astype(np.float32) for shape in shapes]


SHAPES_OF = (4, 3), (3, 5), (5,)


def test_a_program_prints_like_a_jaxpr():
    assert repr(trace(network, *SHAPES_OF)) == (
        "{ lambda a:[4,3] b:[3,5] c:[5] .\n"
        "  let d:[4,5] = matmul a b\n"
        "      e:[4,5] = add d c\n"
        "      f:[4,5] = relu e\n"
        "      g:[4,5] = mul f 2.0\n"
        "  in (g) }"
    )
    assert repr(trace(lambda x: x, ())) == "{ lambda a:[] .\n  in (a) }"


def test_it_has_the_equations_of_jaxs_own_jaxpr():
    def in_jax(x, w, bias):
        return jnp.maximum(x @ w + bias, 0.0) * 2.0

    equations = jax.make_jaxpr(in_jax)(*arrays(*SHAPES_OF)).eqns
    theirs = [one.primitive.name for one in equations if one.primitive.name != "broadcast_in_dim"]
    ours = [one.op for one in trace(network, *SHAPES_OF).equations]
    assert theirs == ["dot_general", "add", "max", "mul"]
    assert ours == ["matmul", "add", "relu", "mul"]


@pytest.mark.parametrize("function", [network, loss])
def test_a_program_computes_what_the_function_does(function):
    given = arrays(*SHAPES_OF)
    expected = function(*given)
    found = evaluate(trace(function, *SHAPES_OF), *given)
    assert isinstance(found, tuple)
    for mine, theirs in zip(found, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-6)
        assert mine.dtype == np.float32


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        *((op, ((2, 1, 3), (4, 1))) for op in ("add", "sub", "mul", "div", "maximum")),
        *((op, ((2, 3),)) for op in ("neg", "relu", "exp", "sum", "transpose")),
        *(("matmul", shapes) for shapes in [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,))]),
        ("matmul", ((3,), (3,))),
    ],
)
def test_the_shapes_are_those_that_numpy_gives(op, shapes):
    assert SHAPES[op](*shapes) == NUMPY[op](*arrays(*shapes)).shape


def test_every_operation_has_both_a_shape_and_a_meaning():
    assert SHAPES.keys() == NUMPY.keys()


def test_all_of_pythons_operators_and_methods_are_written_down():
    def everything(x, y):
        a = (1 + x) - (2 - y) * (3 * x) / (4 / y)
        b = (x.T @ y).transpose() ** 2 + 2 ** x.sum()
        return a, b.exp().log().relu().maximum(-1.0), np.float32(2) + tracer.maximum(-x, y), np.ones(()) * x

    given = [np.abs(one) / 4 for one in arrays((3, 3), (3, 3))]
    program = trace(everything, (3, 3), (3, 3))
    assert {one.op for one in program.equations} == SHAPES.keys()

    x, y = given
    expected = [(1 + x) - (2 - y) * (3 * x) / (4 / y), (x.T @ y).T ** 2 + 2 ** x.sum(), 2 + np.maximum(-x, y), x]
    for mine, theirs in zip(evaluate(program, *given), expected, strict=True):
        np.testing.assert_allclose(mine, theirs, rtol=1e-5)


def test_loops_and_branches_on_shapes_are_gone():
    def power(x):
        y = x
        for _ in range(3 if x.shape == (2,) else 1):
            y = y * x
        return y

    assert len(trace(power, (2,)).equations) == 3
    assert len(trace(power, (5,)).equations) == 1


def test_numbers_stay_numbers_and_a_function_may_return_one():
    program = trace(lambda x: (x * 2, 3.5), (2,))
    assert program.equations[0].inputs[1] == 2
    assert program.outputs[1] == 3.5
    assert evaluate(program, np.ones(2))[1] == 3.5


def test_what_no_output_needs_is_left_out():
    def wasteful(x, y):
        unused = tracer.exp(y) + 1
        kept = x * 3
        _ = unused - kept
        return kept, x

    program = trace(wasteful, (2,), (2,))
    cleaned = live(program)
    assert [one.op for one in cleaned.equations] == ["mul"]
    assert cleaned.inputs == program.inputs
    given = arrays((2,), (2,))
    for mine, theirs in zip(evaluate(cleaned, *given), evaluate(program, *given), strict=True):
        np.testing.assert_array_equal(mine, theirs)
    assert live(cleaned) == cleaned


def test_a_reader_may_record_himself():
    seen = []

    def own(equations, op, operands):
        seen.append(op)
        return tracer.record(equations, op, operands)

    assert len(trace(network, *SHAPES_OF, record=own).equations) == 4
    assert seen == ["matmul", "add", "relu", "mul"]
    with pytest.raises(TraceError, match="did not return a variable"):
        trace(network, *SHAPES_OF, record=lambda equations, op, operands: None)


@pytest.mark.parametrize(
    "function",
    [
        lambda x: x if x > 0 else -x,
        lambda x: x if x else -x,
        lambda x: x if x == 0 else -x,
        lambda x: float(x),
        lambda x: np.asarray(x),
        lambda x: range(x),
    ],
)
def test_what_takes_numbers_to_decide_cannot_be_traced(function):
    with pytest.raises(TraceError, match="no number yet"):
        trace(function, ())


def test_a_leaked_value_is_told():
    kept = []
    trace(lambda x: kept.append(x) or x, (2,))
    with pytest.raises(TraceError, match="has left the function"):
        trace(lambda x: x + kept[0], (2,))


@pytest.mark.parametrize("function", [lambda x: x + np.ones(2), lambda x: np.ones(2) + x, lambda x: "x"])
def test_arrays_are_arguments_not_parts_of_a_program(function):
    with pytest.raises(TraceError, match="cannot be part of a program"):
        trace(function, (2,))


def test_shapes_that_do_not_fit_are_told_while_tracing():
    with pytest.raises(TraceError, match="cannot be stretched"):
        trace(lambda x, y: x + y, (2,), (3,))
    with pytest.raises(TraceError, match="no matrix product"):
        trace(lambda x, y: x @ y, (2, 3), (2, 3))
    with pytest.raises(TraceError, match="not those that the function was traced for"):
        evaluate(trace(network, *SHAPES_OF), *arrays((1, 3), *SHAPES_OF[1:]))
    with pytest.raises(TraceError, match="traced for shapes"):
        trace(network, 4, 3)


def test_many_variables_have_names_and_a_stranger_a_number():
    program = trace(lambda x: [x := x + 1 for _ in range(30)][-1], ())
    assert list(program.names().values())[24:29] == ["y", "z", "aa", "ab", "ac"]
    stranger = fresh((2,))
    lost = Program((), (Equation("neg", (stranger,), fresh((2,))),), ())
    assert f"neg ?{stranger.number}" in repr(lost)
    assert isinstance(stranger, Variable)
    with pytest.raises(TraceError, match="before it is made"):
        evaluate(lost)
