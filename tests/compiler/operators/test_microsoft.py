"""Operators of com.microsoft against ONNX Runtime, on every target."""

import numpy as np
import pytest
from onnx import helper, numpy_helper

from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.backends.targets import LOWERINGS
from mlhood.compiler.backends.xla import Xla
from mlhood.compiler.onnx.importer import import_model
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import check_outputs, session_of

F, U, S = np.float32, np.uint8, np.int8


def reals(*shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(F)


def integers(dtype, *shape, seed=0):
    limits = np.iinfo(dtype)
    return np.random.default_rng(seed).integers(limits.min, limits.max, shape, dtype, endpoint=True)


def model_of(op_type, inputs, variable=(0,), outputs=1, elements=(), **attributes):
    """Return a model of one node, in which inputs at some positions are those of the graph, and what these get."""
    names = ["" if array is None else f"x{i}" for i, array in enumerate(inputs)]
    arrays = {name: np.asarray(array) for name, array in zip(names, inputs, strict=True) if name}
    free = {f"x{i}": arrays.pop(f"x{i}") for i in variable}
    default = next(iter(free.values())).dtype
    number_of = helper.np_dtype_to_tensor_dtype
    types = [number_of(np.dtype(each or default)) for each in elements or [default] * outputs]
    graph = helper.make_graph(
        [helper.make_node(op_type, names, [f"y{i}" for i in range(outputs)], domain="com.microsoft", **attributes)],
        "g",
        [helper.make_tensor_value_info(name, number_of(array.dtype), array.shape) for name, array in free.items()],
        [helper.make_tensor_value_info(f"y{i}", type, None) for i, type in enumerate(types)],
        [numpy_helper.from_array(array, name) for name, array in arrays.items()],
    )
    opsets = [helper.make_opsetid("", 21), helper.make_opsetid("com.microsoft", 1)]
    return helper.make_model(graph, opset_imports=opsets, ir_version=10), free


def check(model, inputs, steps=0, xla=True, **tolerance):
    wanted = session_of(model).run(None, inputs)
    for value, array in zip(model.graph.output, wanted, strict=True):
        value.CopyFrom(helper.make_tensor_value_info(value.name, value.type.tensor_type.elem_type, array.shape))
    if steps:  # integers may differ by one where the sum of the roundings does
        tolerance = {"rtol": 0, "atol": steps}
    graph = import_model(model)
    runs = {"interpreter": Interpreter(graph), "cpu": Cpu(LOWERINGS["cpu"](import_model(model)))}
    if xla:
        runs["xla"] = Xla(graph)
    for name, runner in runs.items():
        got = runner.run(inputs)
        check_outputs({k: v.astype(F) for k, v in got.items()}, [w.astype(F) for w in wanted], tolerance, name)
        assert [v.dtype for v in got.values()] == [w.dtype for w in wanted]


def q(dtype, *shape, scale=0.05, zero=None, seed=0):
    """Return a quantised operand: integers, scale and zero point."""
    return [integers(dtype, *shape, seed=seed), F(scale), dtype(100 if dtype is U else -3) if zero is None else zero]


QLINEAR = {
    "QLinearAdd": lambda d: [*q(d, 2, 3, 4), *q(d, 3, 1, scale=0.02, seed=1), F(0.06), d(5)],
    "QLinearMul": lambda d: [*q(d, 2, 3, 4), *q(d, 4, scale=0.02, seed=1), F(0.06), d(5)],
    "QLinearSigmoid": lambda d: [*q(d, 2, 3, 4), F(1 / 256), d(0)],
    "QLinearLeakyRelu": lambda d: [*q(d, 2, 3, 4), F(0.05), d(50)],
    "QLinearGlobalAveragePool": lambda d: [*q(d, 2, 3, 4, 5), F(0.02), d(100)],
    "QLinearAveragePool": lambda d: [*q(d, 2, 3, 6, 5), F(0.04), d(100)],
    "QLinearSoftmax": lambda d: [*q(d, 2, 3, 4, scale=0.01), F(1 / 256), d(0)],
    "QLinearConcat": lambda d: [F(0.06), d(9), *q(d, 2, 3), *q(d, 2, 5, scale=0.1, seed=1)],
    "QLinearWhere": lambda d: [reals(2, 3) > 0, *q(d, 2, 3), *q(d, 3, scale=0.02), F(0.06), d(5)],
    "QGemm": lambda d: [
        *q(d, 2, 3),
        *q(S, 3, 4, zero=S(0)),
        integers(np.int16, 4).astype(np.int32) // 99,
        F(0.5),
        d(7),
    ],
}
ATTRIBUTES = {
    "QLinearLeakyRelu": {"alpha": 0.2},
    "QLinearAveragePool": {"kernel_shape": [2, 3], "pads": [1, 1, 0, 0], "strides": [2, 1], "count_include_pad": 1},
    "QLinearSoftmax": {"axis": -1, "opset": 13},
    "QLinearConcat": {"axis": 1},
    "QGemm": {"alpha": 0.5},
}


@pytest.mark.parametrize("dtype", [U, S], ids=["uint8", "int8"])
@pytest.mark.parametrize("name", QLINEAR)
def test_qlinear(name, dtype):
    variable = {"QLinearConcat": (2, 5), "QLinearWhere": (0, 1)}.get(name, (0,))
    check(*model_of(name, QLINEAR[name](dtype), variable, elements=[dtype], **ATTRIBUTES.get(name, {})), steps=1)


def test_softmax_of_old_opsets_is_over_all_axes_from_the_given_one_on():
    model, inputs = model_of("QLinearSoftmax", QLINEAR["QLinearSoftmax"](U), axis=1, opset=11)
    check(model, inputs, steps=1)


def test_channels_in_the_last_axis_are_refused():
    model, _ = model_of("QLinearGlobalAveragePool", QLINEAR["QLinearGlobalAveragePool"](U), channels_last=1)
    model.graph.output[0].CopyFrom(helper.make_tensor_value_info("y0", 2, [2, 1, 1, 5]))
    with pytest.raises(CompilerError, match="the channels must be the second axis"):
        import_model(model)


@pytest.mark.parametrize("zero_points", [None, U, F], ids=["no zero points", "packed", "float"])
@pytest.mark.parametrize(("bits", "size", "columns"), [(4, 16, 64), (4, 32, 80), (2, 16, 64)])
def test_matmul_of_few_bits(bits, size, columns, zero_points):
    rows, count = 6, -(-columns // size)
    data, scales = integers(U, rows, count, size * bits // 8), np.abs(reals(rows, count)) / 8
    zeros = None
    if zero_points is U:
        zeros = integers(U, rows, -(-count * bits // 8))
    elif zero_points is F:
        zeros = reals(rows, count) + 3
    inputs = [reals(2, 3, columns), data, scales, zeros, None, reals(rows)]
    model, given = model_of("MatMulNBits", inputs, K=columns, N=rows, bits=bits, block_size=size)
    check(model, given, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("zeros", [None, integers(U, 6, 2, seed=1)], ids=["no zero points", "zero points"])
def test_matmul_of_eight_bits(zeros):
    inputs = [reals(3, 64), integers(U, 6, 2, 32), np.abs(reals(6, 2)) / 99, zeros]
    check(*model_of("MatMulNBits", inputs, K=64, N=6, bits=8, block_size=32), rtol=1e-4, atol=1e-4)
