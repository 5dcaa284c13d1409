"""Element types: each that an operator's schema allows is imported and right, or refused with an explanation.

The node tests of ONNX's suite give the inputs; their type constraints are set to each allowed type in turn.
"""

import warnings
from functools import cache

import numpy as np
import onnx
import pytest
from onnx import TensorProto, helper, numpy_helper
from onnx.reference import ReferenceEvaluator

import mlhood
from mlhood.compiler.operators import IMPORT_RULES
from mlhood.errors import CompilerError
from tests.compiler.operators.agreement import session_of, single
from tests.tools.compiler.conformance import cases
from tests.tools.compiler.onnx_backend import MlhoodBackend

Node = helper.make_node
TYPES = {
    "tensor(float16)": 10,
    "tensor(float)": 1,
    "tensor(double)": 11,
    "tensor(bfloat16)": 16,
    "tensor(bool)": 9,
    "tensor(int8)": 3,
    "tensor(int16)": 5,
    "tensor(int32)": 6,
    "tensor(int64)": 7,
    "tensor(uint8)": 2,
    "tensor(uint16)": 4,
    "tensor(uint32)": 12,
    "tensor(uint64)": 13,
}
TOLERANCES = {TensorProto.FLOAT16: 2e-2, TensorProto.BFLOAT16: 1e-1, TensorProto.DOUBLE: 1e-12}
# Operators of which neither ONNX Runtime nor the reference computes with float64: they round constants or results.
FLOAT32_ORACLES = {"Erf", "Gelu", "GroupNormalization", "HardSwish", "LRN"}


@cache
def first_cases():
    """Return the first test of each operator with an import rule."""
    found = {}
    for case in cases():
        nodes = case.model.graph.node
        known = len(nodes) == 1 and nodes[0].domain == "" and nodes[0].op_type in IMPORT_RULES
        if case.suite == "node" and known and all(isinstance(array, np.ndarray) for array in case.data[0][0]):
            found.setdefault(nodes[0].op_type, case)
    return found


def retyped(case):
    """Yield the test with the inputs of one type constraint, or of all that are float32, in each allowed type."""
    (node,) = case.model.graph.node
    opset = max(entry.version for entry in case.model.opset_import if entry.domain == "")
    schema = onnx.defs.get_schema(node.op_type, opset)
    formal = [schema.inputs[min(i, len(schema.inputs) - 1)].type_str for i in range(len(node.input))]
    results = [schema.outputs[min(i, len(schema.outputs) - 1)].type_str for i in range(len(node.output))]
    constraint_of = {name: constraint for name, constraint in zip(node.input, formal, strict=True) if name}
    constraint_of |= dict(zip(node.output, results, strict=True))
    allowed = {
        each.type_param_str: {TYPES[t] for t in each.allowed_type_strs if t in TYPES}
        for each in schema.type_constraints
    }
    given = {value.name: value.type.tensor_type.elem_type for value in case.model.graph.input}
    groups = [{constraint} for constraint in allowed]
    groups.append({constraint_of[name] for name, element in given.items() if element == TensorProto.FLOAT})
    for group in filter(None, groups):
        if {element for name, element in given.items() if constraint_of[name] in group}:
            for element in sorted(set.intersection(*(allowed.get(constraint, set()) for constraint in group))):
                yield element, *converted(case, lambda name, group=group: constraint_of[name] in group, element)


def converted(case, is_changed, element):
    model = onnx.ModelProto()
    model.CopyFrom(case.model)
    dtype = np.dtype(helper.tensor_dtype_to_np_dtype(element))
    feeds = {}
    for value, array in zip(model.graph.input, case.data[0][0], strict=True):
        if is_changed(value.name):
            value.type.tensor_type.elem_type = element
            if dtype.kind in "iub" and array.dtype.kind == "f":
                array = np.rint(np.clip(np.nan_to_num(array), -30, 30) * 3)
            if dtype.kind == "u" and array.dtype.kind in "if":
                array = np.abs(array)
            finer = 1e-9 if dtype == np.float64 and array.dtype == np.float32 else 0  # digits that float32 would lose
            array = array.astype(dtype)
            array = array + array * finer if finer else array
        feeds[value.name] = array
    del model.graph.value_info[:]
    for value in model.graph.output:
        value.type.tensor_type.elem_type = 0
    inferred = onnx.shape_inference.infer_shapes(model).graph.output
    for value, other in zip(model.graph.output, inferred, strict=True):
        value.type.tensor_type.elem_type = other.type.tensor_type.elem_type
    return model, feeds


def oracles(model, feeds):
    """Return what ONNX Runtime and the reference compute, of those that run the model."""
    results = {}
    for name, run in (
        ("onnxruntime", lambda: session_of(model).run(None, feeds)),
        ("reference", lambda: ReferenceEvaluator(model).run(None, feeds)),
    ):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                results[name] = run()
        except Exception:  # of many classes; it does not have this type
            continue
    return results


def same(got, wanted, tolerance):
    """Return whether numbers agree; the reference's types are not always those of the standard."""
    if got.shape != np.shape(wanted):
        return False
    if got.dtype.kind in "iub":
        return np.array_equal(got, wanted)
    return np.allclose(np.asarray(got, float), np.asarray(wanted, float), tolerance, tolerance, equal_nan=True)


@pytest.mark.parametrize("name", sorted(first_cases()))
def test_each_type_that_the_schema_allows(name):
    case = first_cases()[name]
    for element, model, feeds in retyped(case):
        wanted = oracles(model, feeds)
        if not wanted:
            continue
        try:
            got = list(MlhoodBackend.prepare(model).run(list(feeds.values())))
        except CompilerError:
            assert "onnxruntime" not in wanted, (element, name)
            continue
        mixed = any(array.dtype == np.float32 for array in (*feeds.values(), *got)) or name in FLOAT32_ORACLES
        tolerance = 1e-4 if element == TensorProto.DOUBLE and mixed else TOLERANCES.get(element, 1e-4)
        types = [value.type.tensor_type.elem_type for value in model.graph.output]
        elements = [helper.np_dtype_to_tensor_dtype(array.dtype) for array in got]
        assert all(a in (0, b) for a, b in zip(types, elements, strict=True)), element  # 0 where ONNX infers none
        agrees = [all(map(lambda a, b: same(a, b, tolerance), got, each)) for each in wanted.values()]
        assert any(agrees), (element, got, wanted)


SIGNED, UNSIGNED = ("int4", "int2", "int8"), ("uint4", "uint2", "uint8", "uint16")
FLOATS = ("bfloat16", "float8_e4m3fn", "float8_e4m3fnuz", "float8_e5m2", "float8_e5m2fnuz", "float4_e2m1fn")
NUMBERS = np.float32(
    [0, -0.0, 0.3, -1.75, 2.5, 3.5, 1e4, -1e9, 17, 449, 464, 465, 57344, 61440, np.inf, -np.inf, np.nan]
)


def number_of(element):
    return helper.np_dtype_to_tensor_dtype(np.dtype(element))


def model_of(nodes, inputs, outputs, constants=(), opset=23):
    """Return a model; inputs are arrays by name, outputs their element types by name."""
    info = helper.make_tensor_value_info
    graph = helper.make_graph(
        nodes,
        "g",
        [info(name, number_of(array.dtype), array.shape) for name, array in inputs.items()],
        [info(name, number_of(element), shape) for name, (element, shape) in outputs.items()],
        [numpy_helper.from_array(np.asarray(array), name) for name, array in dict(constants).items()],
    )
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", opset)], ir_version=11)


def agree(model, inputs, targets=("interpreter", "cpu", "xla"), **tolerance):
    """Compare the targets with the reference, of which the types of numbers are those of ml_dtypes."""
    with np.errstate(all="ignore"):
        wanted = ReferenceEvaluator(model).run(None, inputs)
    for target in targets:
        got = mlhood.compile(model, target=target).run(**inputs)
        for array, reference in zip(got.values(), wanted, strict=True):
            assert array.dtype == reference.dtype
            limits = {"rtol": 0, "atol": 0, **tolerance}
            np.testing.assert_allclose(array.astype(float), reference.astype(float), err_msg=target, **limits)


@pytest.mark.parametrize("saturate", [0, 1])
@pytest.mark.parametrize("element", FLOATS)
def test_conversion_to_stored_floats_and_back(element, saturate):
    to = number_of(element)
    given = {"saturate": saturate} if element.startswith("float8") else {}
    nodes = [Node("Cast", ["x"], ["b"], to=to, **given), Node("Cast", ["b"], ["y"], to=1)]
    x = NUMBERS[:-1] if element == "float4_e2m1fn" else NUMBERS  # it has no NaN
    agree(model_of(nodes, {"x": x}, {"b": (element, x.shape), "y": ("float32", x.shape)}), {"x": x})


@pytest.mark.parametrize("element", [*SIGNED, *UNSIGNED])
def test_conversion_of_stored_integers(element):
    x = np.arange(-2 if element in SIGNED else 0, 2, dtype=np.int8)
    nodes = [Node("Cast", ["x"], ["b"], to=number_of(element)), Node("Cast", ["b"], ["y"], to=6)]
    agree(model_of(nodes, {"x": x}, {"b": (element, x.shape), "y": ("int32", x.shape)}), {"x": x})


@pytest.mark.parametrize(("blocks", "computed"), [(0, False), (0, True), (2, False)])
@pytest.mark.parametrize("element", [*SIGNED, *UNSIGNED, *FLOATS[1:]])
def test_quantisation_to_stored_types_and_back(element, blocks, computed):
    x = np.float32([[0.6, -2.25, 3], [-8.1, 7, 0.25], [100, 2, 2], [5, -100, 4]])
    scale = np.float32([0.5, 0.25, 2]) if not blocks else np.float32([[0.5, 0.25, 2], [1, 4, 0.125]])
    zero = np.ones(scale.shape).astype(element) if element in (*SIGNED, *UNSIGNED) else np.zeros(scale.shape, element)
    nodes = [Node("QuantizeLinear", ["x", "s", "z"], ["q"], axis=0 if blocks else 1, block_size=blocks)]
    nodes.append(Node("DequantizeLinear", ["q", "s", "z"], ["y"], axis=0 if blocks else 1, block_size=blocks))
    parameters = {"s": scale, "z": zero}
    inputs = {"x": x, **(parameters if computed else {})}
    outputs = {"q": (element, x.shape), "y": ("float32", x.shape)}
    targets = ("interpreter", "cpu", *(() if computed or blocks else ("xla",)))
    agree(model_of(nodes, inputs, outputs, () if computed else parameters), inputs, targets)


@pytest.mark.parametrize("shape", [(), (1,)])
def test_one_computed_scale(shape):
    inputs = {"x": np.float32([[0.6, -2.25, 3]]), "s": np.full(shape, 0.3, np.float32)}
    nodes = [Node("QuantizeLinear", ["x", "s"], ["q"]), Node("DequantizeLinear", ["q", "s"], ["y"])]
    agree(model_of(nodes, inputs, {"q": ("uint8", (1, 3)), "y": ("float32", (1, 3))}), inputs)


@pytest.mark.parametrize("scale", ["float16", "bfloat16"])
def test_the_scale_has_the_type_of_the_reals(scale):
    inputs = {"q": np.int8([[1, -2, 3]])}
    nodes = [Node("DequantizeLinear", ["q", "s"], ["y"]), Node("QuantizeLinear", ["y", "s", "z"], ["p"])]
    constants = {"s": np.array(0.25, scale), "z": np.int8(3)}
    agree(model_of(nodes, inputs, {"y": (scale, (1, 3)), "p": ("int8", (1, 3))}, constants), inputs)


def test_bfloat16_is_computed_in_float32_and_rounded_after_each_operator():
    rng = np.random.default_rng(0)
    x = rng.standard_normal((2, 3, 8)).astype("bfloat16")
    w = rng.standard_normal((8, 4)).astype("bfloat16")
    nodes = [
        Node("MatMul", ["x", "w"], ["h"]),
        Node("Transpose", ["h"], ["t"], perm=[0, 2, 1]),
        Node("Concat", ["t", "t"], ["c"], axis=1),
        Node("Add", ["c", "c"], ["a"]),
        Node("Reshape", ["a", "shape"], ["y"]),
        Node("Greater", ["y", "y"], ["g"]),
        Node("Shape", ["y"], ["s"]),
    ]
    outputs = {"y": ("bfloat16", (2, 24)), "g": ("bool", (2, 24)), "s": ("int64", (2,))}
    agree(model_of(nodes, {"x": x}, outputs, {"w": w, "shape": np.array([2, -1])}), {"x": x}, rtol=1e-2)


BIG = np.array([2**63 - 1, -(2**63), 2**53 + 1, -(2**31) - 1, 0, 7])
INTEGERS = {
    "Clip": ([BIG], {"low": np.array(-(2**53) - 1), "high": np.array(2**62 + 1)}),
    "Max": ([BIG], {"b": np.array(2**53)}),
    "Add": ([BIG], {"b": np.array(2**40)}),
    "Mul": ([BIG], {"b": np.array(2**33 + 1)}),
    "Pow": ([np.array([2**31 + 1, -3, 0])], {"b": np.array(2)}),
    "ReduceMin": ([np.array([2**64 - 1, 2**63], np.uint64)], {}),
    "Mod": ([BIG[2:]], {"b": np.array(2**53)}),
    "Slice": ([BIG], {"start": np.array([1]), "stop": np.array([2**63 - 1]), "axis": np.array([0]), "step": BIG[:1]}),
}


@pytest.mark.parametrize("target", ["interpreter", "cpu", "xla"])
@pytest.mark.parametrize("name", INTEGERS)
def test_integers_that_no_float_holds(name, target):
    (x,), constants = INTEGERS[name]
    shape = (1,) if name in ("ReduceMin", "Slice") else x.shape
    model = model_of([Node(name, ["x", *constants], ["y"])], {"x": x}, {"y": (x.dtype, shape)}, constants)
    agree(model, {"x": x}, [target])


@pytest.mark.parametrize("element", ["float16", "float32", "float64"])
def test_mean_variance_normalisation(element):
    x = np.random.default_rng(0).standard_normal((2, 3, 4, 4)).astype(element)
    model = model_of([Node("MeanVarianceNormalization", ["x"], ["y"])], {"x": x}, {"y": (element, x.shape)})
    wanted = (x - x.mean((0, 2, 3), dtype=float, keepdims=True)) / x.std((0, 2, 3), dtype=float, keepdims=True)
    tolerance = {"float16": 1e-3, "float32": 1e-5, "float64": 1e-8}[element]  # float64: beside an epsilon of 1e-9
    for target in ("interpreter", "cpu", "xla"):
        y = mlhood.compile(model, target=target).run(x=x)["y"]
        assert y.dtype == element
        np.testing.assert_allclose(y, wanted, tolerance, tolerance)


@pytest.mark.parametrize("mask", ["bool", "int32", "int64", "uint8", "float16", "float32"])
def test_attention_with_a_mask_of_each_type(mask):
    rng = np.random.default_rng(0)
    inputs = {name: rng.standard_normal((1, 2, 3, 4)).astype(np.float32) for name in "qkv"}
    inputs["mask"] = rng.integers(0, 2, (3, 3)).astype(mask)
    agree(single("Attention", inputs, opset=23), inputs, rtol=1e-5, atol=1e-6)
