"""The tracer: a recorded program computes what its function does, and has the equations of JAX's jaxpr."""

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

RNG = np.random.default_rng(0)


def network(x, w, bias):
    return tracer.relu(x @ w + bias) * 2.0


def loss(x, w, bias):
    scores = network(x, w, bias) - 1
    return tracer.log(tracer.sum(tracer.exp(-scores)) / 3), (scores**2).sum()


def arrays(*shapes):
    return [RNG.standard_normal(shape).astype(np.float32) for shape in shapes]


ARGUMENT_SHAPES = (4, 3), (3, 5), (5,)


def test_a_program_prints_like_a_jaxpr():
    assert repr(trace(network, *ARGUMENT_SHAPES)) == (
        "{ lambda a:[4,3] b:[3,5] c:[5] .\n"
        "  let d:[4,5] = matmul a b\n"
        "      e:[4,5] = add d c\n"
        "      f:[4,5] = relu e\n"
        "      g:[4,5] = mul f 2.0\n"
        "  in (g) }"
    )
    assert repr(trace(lambda x: x, ())) == "{ lambda a:[] .\n  in (a) }"


def test_it_has_the_equations_of_jaxs_jaxpr():
    def in_jax(x, w, bias):
        return jnp.maximum(x @ w + bias, 0.0) * 2.0

    equations = jax.make_jaxpr(in_jax)(*arrays(*ARGUMENT_SHAPES)).eqns
    primitives = [eqn.primitive.name for eqn in equations if eqn.primitive.name != "broadcast_in_dim"]
    ops = [equation.op for equation in trace(network, *ARGUMENT_SHAPES).equations]
    assert primitives == ["dot_general", "add", "max", "mul"]
    assert ops == ["matmul", "add", "relu", "mul"]


@pytest.mark.parametrize("function", [network, loss])
def test_a_program_computes_what_the_function_does(function):
    arguments = arrays(*ARGUMENT_SHAPES)
    expected = function(*arguments)
    results = evaluate(trace(function, *ARGUMENT_SHAPES), *arguments)
    assert isinstance(results, tuple)
    for result, wanted in zip(results, expected if isinstance(expected, tuple) else [expected], strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-6)
        assert result.dtype == np.float32


@pytest.mark.parametrize(
    ("op", "shapes"),
    [
        *((op, ((2, 1, 3), (4, 1))) for op in ("add", "sub", "mul", "div", "maximum")),
        *((op, ((2, 3),)) for op in ("neg", "relu", "exp", "sum", "transpose")),
        *(("matmul", shapes) for shapes in [((2, 3), (3, 4)), ((5, 2, 3), (3, 4)), ((3,), (3, 4)), ((2, 3), (3,))]),
        ("matmul", ((3,), (3,))),
    ],
)
def test_the_shape_rules_match_numpy(op, shapes):
    assert SHAPES[op](*shapes) == NUMPY[op](*arrays(*shapes)).shape


def test_every_operation_has_a_shape_rule_and_an_implementation():
    assert SHAPES.keys() == NUMPY.keys()


def test_all_operators_and_methods_are_recorded():
    def everything(x, y):
        a = (1 + x) - (2 - y) * (3 * x) / (4 / y)
        b = (x.T @ y).transpose() ** 2 + 2 ** x.sum()
        return a, b.exp().log().relu().maximum(-1.0), np.float32(2) + tracer.maximum(-x, y), np.ones(()) * x

    x, y = (np.abs(array) / 4 for array in arrays((3, 3), (3, 3)))
    program = trace(everything, (3, 3), (3, 3))
    assert {equation.op for equation in program.equations} == SHAPES.keys()

    expected = [(1 + x) - (2 - y) * (3 * x) / (4 / y), (x.T @ y).T ** 2 + 2 ** x.sum(), 2 + np.maximum(-x, y), x]
    for result, wanted in zip(evaluate(program, x, y), expected, strict=True):
        np.testing.assert_allclose(result, wanted, rtol=1e-5)


def test_loops_and_branches_on_shapes_are_unrolled():
    def power(x):
        y = x
        for _ in range(3 if x.shape == (2,) else 1):
            y = y * x
        return y

    assert len(trace(power, (2,)).equations) == 3
    assert len(trace(power, (5,)).equations) == 1


def test_numbers_are_literals_and_a_function_may_return_one():
    program = trace(lambda x: (x * 2, 3.5), (2,))
    assert program.equations[0].inputs[1] == 2
    assert program.outputs[1] == 3.5
    assert evaluate(program, np.ones(2))[1] == 3.5


def test_dead_code_is_eliminated():
    def wasteful(x, y):
        unused = tracer.exp(y) + 1
        result = x * 3
        _ = unused - result
        return result, x

    program = trace(wasteful, (2,), (2,))
    simplified = live(program)
    assert [equation.op for equation in simplified.equations] == ["mul"]
    assert simplified.inputs == program.inputs
    arguments = arrays((2,), (2,))
    for result, wanted in zip(evaluate(simplified, *arguments), evaluate(program, *arguments), strict=True):
        np.testing.assert_array_equal(result, wanted)
    assert live(simplified) == simplified


def test_a_custom_record_function():
    ops = []

    def record(equations, op, operands):
        ops.append(op)
        return tracer.record(equations, op, operands)

    assert len(trace(network, *ARGUMENT_SHAPES, record=record).equations) == 4
    assert ops == ["matmul", "add", "relu", "mul"]
    with pytest.raises(TraceError, match="did not return a variable"):
        trace(network, *ARGUMENT_SHAPES, record=lambda equations, op, operands: None)


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
def test_control_flow_on_data_cannot_be_traced(function):
    with pytest.raises(TraceError, match="no concrete value"):
        trace(function, ())


def test_a_leaked_tracer_is_rejected():
    leaked = []
    trace(lambda x: leaked.append(x) or x, (2,))
    with pytest.raises(TraceError, match="has leaked"):
        trace(lambda x: x + leaked[0], (2,))


@pytest.mark.parametrize("function", [lambda x: x + np.ones(2), lambda x: np.ones(2) + x, lambda x: "x"])
def test_arrays_must_be_arguments(function):
    with pytest.raises(TraceError, match="invalid operand"):
        trace(function, (2,))


def test_mismatched_shapes_are_rejected():
    with pytest.raises(TraceError, match="cannot be broadcast"):
        trace(lambda x, y: x + y, (2,), (3,))
    with pytest.raises(TraceError, match="invalid shapes for a matrix product"):
        trace(lambda x, y: x @ y, (2, 3), (2, 3))
    with pytest.raises(TraceError, match="differ from those that the function was traced for"):
        evaluate(trace(network, *ARGUMENT_SHAPES), *arrays((1, 3), *ARGUMENT_SHAPES[1:]))
    with pytest.raises(TraceError, match="are shapes"):
        trace(network, 4, 3)


def test_names_of_many_variables_and_of_undefined_ones():
    program = trace(lambda x: [x := x + 1 for _ in range(30)][-1], ())
    assert list(program.names().values())[24:29] == ["y", "z", "aa", "ab", "ac"]
    undefined = fresh((2,))
    invalid = Program((), (Equation("neg", (undefined,), fresh((2,))),), ())
    assert f"neg ?{undefined.number}" in repr(invalid)
    assert isinstance(undefined, Variable)
    with pytest.raises(TraceError, match="before its definition"):
        evaluate(invalid)
