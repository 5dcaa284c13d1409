"""Chains of element-wise operations against NumPy: broadcasting, remainders, threads, guards."""

import numpy as np
import pytest

from mlhood.errors import KernelError
from mlhood.kernels import elementwise
from mlhood.kernels.codegen import jit
from mlhood.kernels.codegen.target import AARCH64
from mlhood.kernels.elementwise import Operand
from mlhood.kernels.native import KernelSequence, run
from tests.kernels.guards import guarded, run_guarded

RNG = np.random.default_rng(5)
SUM: tuple[elementwise.Step, ...] = (("Add", (), (0, 1)),)
CHAIN: tuple[elementwise.Step, ...] = (
    ("Mul", (), (0, 1)),
    ("Constant", (0.5,), ()),
    ("Add", (), (3, 2)),
    ("Sub", (), (5, 4)),
    ("Clip", (-1, 4.0), (6,)),
)
BINARY = {
    "Add": np.add,
    "Div": np.divide,
    "Max": np.maximum,
    "Min": np.minimum,
    "Mul": np.multiply,
    "PRelu": lambda a, b: np.where(a >= 0, a, a * b),
    "Sub": np.subtract,
}
# shapes of two operands and of the result
SHAPES = [
    ((), (), ()),
    ((1,), (1, 1), (1, 1, 1)),
    ((7,), (7,), (7,)),
    ((64,), (1,), (64,)),
    ((2, 3, 5, 7), (2, 3, 5, 7), (2, 3, 5, 7)),
    ((2, 3, 5, 7), (3, 1, 1), (2, 3, 5, 7)),
    ((2, 3, 1, 1), (2, 3, 5, 7), (2, 3, 5, 7)),
    ((2, 3, 5, 7), (5, 1), (2, 3, 5, 7)),
    ((5, 7), (2, 3, 1, 7), (2, 3, 5, 7)),
    ((33, 1), (1, 41), (33, 41)),
    ((300, 67), (67,), (300, 67)),
    ((2, 9000), (2, 1), (2, 9000)),
    ((5000, 3), (3,), (5000, 3)),
    ((0,), (1,), (0,)),
    ((3, 0, 5), (3, 1, 5), (3, 0, 5)),
    # seven dimensions that cannot be merged
    ((2, 1, 2, 1, 2, 1, 3), (1, 3, 1, 2, 1, 3, 1), (2, 3, 2, 2, 2, 3, 3)),
]


def values(shape):
    return RNG.standard_normal(shape).astype(np.float32) * 2


@pytest.mark.parametrize(("a", "b", "out"), SHAPES, ids=str)
def test_operands_are_broadcast(a, b, out, target):
    x0, x1 = values(a), values(b)
    y = run_guarded(elementwise.prepare(SUM, (a, b), out, target), out, x0=x0, x1=x1)
    np.testing.assert_array_equal(y, np.broadcast_to(x0 + x1, out))


@pytest.mark.parametrize(
    "spread", [(1, 1, 1, 0), (1, 3, 1, 0), (2, 3, 5, 0), (1, 3, 1, 1), (2, 3, 1, 1), (1,)], ids=str
)
def test_blocked_layouts_are_broadcast(spread, target):
    """The last axis has as many elements as a register; `spread` is the second operand's shape, 0 a full axis."""
    shape = 2, 3, 5, target.lanes
    other = tuple(size or target.lanes for size in spread)
    x0, x1 = values(shape), values(other)
    y = run_guarded(elementwise.prepare(SUM, (shape, other), shape, target), shape, x0=x0, x1=x1)
    np.testing.assert_array_equal(y, x0 + x1)


@pytest.mark.parametrize("name", BINARY)
def test_operations_of_two_operands_are_those_of_numpy(name, target):
    special = np.array([0, -0.0, 1, -2.5, np.inf, -np.inf, np.nan, 1e-40, 3e38], np.float32)
    x0, x1 = (np.ascontiguousarray(x) for x in np.meshgrid(special, special))
    call = elementwise.prepare([(name, (), (0, 1))], (x0.shape, x1.shape), x0.shape, target)
    with np.errstate(all="ignore"):
        expected = BINARY[name](x0, x1)
    np.testing.assert_array_equal(run_guarded(call, x0.shape, x0=x0, x1=x1), expected)


@pytest.mark.parametrize("size", [1, 5, 8, 31, 33, 64, 20_003])
def test_a_chain_is_one_loop(size, target):
    x0, x1, x2 = values((3, size)), values((3, 1)), values((size,))
    call = elementwise.prepare(CHAIN, (x0.shape, x1.shape, x2.shape), x0.shape, target)
    y = run_guarded(call, x0.shape, x0=x0, x1=x1, x2=x2)
    np.testing.assert_array_equal(y, np.clip(x0 * x1 + x2 - np.float32(0.5), -1, 4))


@pytest.mark.parametrize("size", [9, 1000])
def test_functions_end_with_a_partial_vector(size, target):
    x0 = values((size,))
    call = elementwise.prepare([("Sigmoid", (), (0,)), ("Mul", (), (0, 1))], [x0.shape], x0.shape, target)
    np.testing.assert_allclose(run_guarded(call, x0.shape, x0=x0), x0 / (1 + np.exp(-x0)), rtol=1e-6)


def test_every_operation_is_supported(target):
    """All in one chain: each but the constant is applied to the inputs, and all results are added."""
    x0, x1 = np.full(11, 0.75, np.float32), np.full(11, 0.5, np.float32)
    steps: list[elementwise.Step] = [("Constant", (0.0,), ())]
    total = 2
    for name, arity in elementwise.OPERATIONS.items():
        if arity:
            steps.append((name, (2,) if name == "Pow" else (), (0, 1)[:arity]))
            steps.append(("Add", (), (total, len(steps) + 1)))
            total = len(steps) + 1
    y = run_guarded(elementwise.prepare(steps, [(11,), (11,)], (11,), target), (11,), x0=x0, x1=x1)
    assert np.isfinite(y).all()
    assert len(set(y)) == 1  # the last elements are like the others


def test_the_result_may_take_the_place_of_an_input(target):
    shape = 3, 5, 41
    x0, x1 = values(shape), values((5, 1))
    expected = x0 * x1
    call = elementwise.prepare([("Mul", (), (0, 1))], (shape, x1.shape), shape, target)
    for threads in (1, 2):
        _, inside = guarded(x0)
        run(call, threads, x0=inside, x1=x1, out=inside)
        np.testing.assert_array_equal(inside, expected)


def test_a_constant_alone_fills_the_result(target):
    y = run_guarded(elementwise.prepare([("Constant", (2.5,), ())], [], (3, 7), target), (3, 7))
    np.testing.assert_array_equal(y, np.full((3, 7), 2.5, np.float32))


def test_calls_run_in_a_sequence():
    x, y = np.arange(100_000, dtype=np.float32), np.empty(100_000, np.float32)
    double = elementwise.prepare([("Add", (), (0, 0))], [x.shape], x.shape)
    sequence = KernelSequence([double, double], threads=2)
    for call, source in enumerate((x, y)):
        sequence.words[sequence.word(call, "x0")] = source.ctypes.data
        sequence.words[sequence.word(call, "out")] = y.ctypes.data
    for _ in range(3):
        sequence.run()
        np.testing.assert_array_equal(y, 4 * x)


def test_sizes_are_not_compiled_into_the_code(target, monkeypatch):
    elementwise.prepare(SUM, ((2, 3, 50), (3, 1)), (2, 3, 50), target)
    monkeypatch.setattr(jit, "compile_ir", None)
    call = elementwise.prepare(SUM, ((4, 7, 90, 2), (1, 7, 1, 1)), (4, 7, 90, 2), target)
    assert call.words.size > 3


@pytest.mark.parametrize(
    ("steps", "shapes", "message"),
    [
        ([("Cbrt", (), (0,))], [(3,)], "no code"),
        ([("Relu", (), (0,))], [(2,)], "cannot be broadcast"),
        ([("Relu", (), (0,))], [(1, 1, 3)], "cannot be broadcast"),
    ],
)
def test_invalid_requests_are_refused(steps, shapes, message):
    with pytest.raises(KernelError, match=message):
        elementwise.prepare(steps, shapes, (3,))


def test_too_many_dimensions_are_refused():
    shapes = tuple(1 if axis % 2 else 2 for axis in range(9)), tuple(2 if axis % 2 else 1 for axis in range(9))
    with pytest.raises(KernelError, match="too many dimensions"):
        elementwise.prepare(SUM, shapes, (2,) * 9)


def test_a_chain_for_arm_is_assembled():
    operands = Operand(vector=True, moves=True), Operand(vector=False, moves=False)
    text = jit.compile_ir(elementwise.build(AARCH64, SUM, operands, False), AARCH64, assembly=True)
    assert text.count("fadd\tv") >= 6
    assert "\tbl\t" not in text
