"""Programs in C, compiled with warnings as errors and run with sanitizers, against ONNX's tests and the oracle."""

import warnings

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import helper
from onnx.backend.test.case.node import collect_testcases

import mlhood
from mlhood.compiler.backends.c.rules import RULES
from mlhood.compiler.backends.c.source import write_source
from mlhood.compiler.lir.execute import execute
from mlhood.compiler.lir.instructions import Compute
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.onnx.importer import import_model
from mlhood.compiler.operators.onnx_node import ConstantNeeded
from mlhood.compiler.quantize import Recipe
from mlhood.errors import CompilerError, MlhoodError
from mlhood.models import digits
from tests.compiler.backends.c.programs import COMPILERS, run_all
from tests.compiler.random_models import BATCH, models
from tests.tools.compiler.conformance import EXCLUDES


def close(actual: np.ndarray, expected: np.ndarray) -> None:
    assert (actual.dtype, actual.shape) == (expected.dtype, expected.shape)
    if expected.dtype.kind != "f":
        np.testing.assert_array_equal(actual, expected)
        return
    finite = expected[np.isfinite(expected)]
    scale = float(np.abs(finite).max(initial=0))
    np.testing.assert_allclose(actual, expected, rtol=1e-5, atol=1e-5 * scale)


# -- ONNX's tests of single operators

# the expected values are rounded to four digits; the import does not know the attribute
EXCLUDED = ("test_averagepool_2d_ceil_last_window_starts_on_pad", "test_spacetodepth_crd_mode_example", *EXCLUDES)


def node_case(test):
    """Return a node test as a program, its inputs and what ONNX expects; None for what is not compiled to C."""
    if not test.data_sets or "_expanded" in test.name or test.name in EXCLUDED:
        return None
    inputs, expected = test.data_sets[0]
    if not all(isinstance(array, np.ndarray | np.generic) for array in (*inputs, *expected)):
        return None
    arrays = {value.name: np.asarray(array) for value, array in zip(test.model.graph.input, inputs, strict=False)}
    static: list[str] = []
    while True:
        try:
            constants = {name: arrays[name] for name in static}
            shapes = {name: array.shape for name, array in arrays.items()}
            program = optimize(lower(import_model(test.model, constants=constants, shapes=shapes)))
            write_source(program)
        except ConstantNeeded as error:
            static.append(error.input_name)
        except MlhoodError:
            return None
        else:
            return program, {name: arrays[name] for name in arrays if name not in static}, expected


@pytest.fixture(scope="module")
def node_cases():
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        tests = collect_testcases(None)
    return {test.name: case for test in tests if (case := node_case(test)) is not None}


REALS = [np.nan, np.inf, -np.inf, 0.0, -0.0, 0.5, 1.5, 2.5, -0.5, -1.0, 1.0, 3.0, -100.0, 100.0]
# reals out of the range of integers, and NaN among them, which ONNX does not define; an infinite weight times a
# padding; the root of minus infinity, which NumPy computes in another way where the exponent is one number
UNDEFINED = ("test_pow_types", "test_pow_bcast_scalar", "test_cast", "test_quantizelinear")
UNDEFINED += ("test_qlinearmatmul", "test_conv", "test_basic_conv")


def special(array: np.ndarray, rng: np.random.Generator) -> np.ndarray:
    """Return an array like another, of numbers at the ends of the range of its type, infinities and NaN."""
    numbers = np.array([False, True]) if array.dtype == bool else np.array(REALS)
    if array.dtype.kind in "iu":
        limits = np.iinfo(array.dtype)
        numbers = np.array([limits.min, limits.min + 1, 0, 1, 2, 3, limits.max - 1, limits.max], array.dtype)
    return rng.choice(numbers, array.shape).astype(array.dtype)


def with_special_numbers(node_cases):
    """Return the programs that take any numbers with some that are special, and what the interpreter computes."""
    rng, cases = np.random.default_rng(0), {}
    for name, (program, inputs, _) in node_cases.items():
        arrays = {key: special(np.asarray(array), rng) for key, array in inputs.items()}
        try:
            with np.errstate(all="ignore"), warnings.catch_warnings():
                warnings.simplefilter("ignore")
                cases[name] = program, arrays, execute(program, **arrays)
        except MlhoodError:  # an index is out of range
            continue
    return cases


@pytest.mark.parametrize("compiler", COMPILERS)
def test_onnx_node_tests(node_cases, tmp_path, compiler):
    special_cases = with_special_numbers(node_cases)
    cases = [case[:2] for case in (*node_cases.values(), *special_cases.values())]
    results = run_all(cases, tmp_path / "c", compiler)
    for (name, (_, _, expected)), outputs in zip(special_cases.items(), results[len(node_cases) :], strict=True):
        if name.startswith(UNDEFINED):
            continue
        for output, wanted in expected.items():
            np.testing.assert_allclose(outputs[output], wanted, rtol=1e-4, atol=1e-4, err_msg=name)
    for name, (_, _, expected), outputs in zip(node_cases, node_cases.values(), results, strict=False):
        for actual, wanted in zip(outputs.values(), expected, strict=True):
            if actual.dtype != np.asarray(wanted).dtype:  # the test's model declares another type than its data
                continue
            assert actual.shape == np.shape(wanted), name
            np.testing.assert_allclose(actual, wanted, rtol=1e-5, atol=1e-6, err_msg=name)


def test_most_node_tests_that_import_have_c(node_cases):
    covered = {
        instruction.operator.name
        for program, _, _ in node_cases.values()
        for instruction in program.instructions
        if isinstance(instruction, Compute)
    }
    made_by_passes = {"FullyConnected", "BlockDense", "QuantizedFullyConnected", "Rescale", "Lookup"}
    made_by_passes |= {name for name in RULES if name.startswith("Quantized") and name not in covered}
    made_by_passes |= {"Quantize", "Dequantize"}  # of constant scales, which are inputs of the node tests
    assert RULES.keys() - covered <= made_by_passes
    assert len(node_cases) > 600


# -- whole networks


@pytest.mark.parametrize("compiler", COMPILERS)
def test_lenet_in_float_and_in_every_schema(lenet_onnx, lenet_bn, tmp_path, compiler):
    images = digits().test_images[:2]
    schemas = [None, "asymmetric", "symmetric", "symmetric_unsigned", "power_of_two"]
    programs = [
        mlhood.compile(lenet_onnx, quantization=schema, stop_after="lir", dims={"batch": 2}) for schema in schemas
    ]
    results = run_all([(program, {"image": images}) for program in programs], tmp_path / "c", compiler)
    for program, actual in zip(programs, results, strict=True):
        expected = execute(program, image=images)["logits"]
        if program is programs[0]:
            close(actual["logits"], expected)
        else:
            np.testing.assert_array_equal(actual["logits"], expected)


RECIPES = [None, None, "symmetric", "asymmetric", "power_of_two"]
RECIPES += [Recipe("asymmetric", element="uint8"), Recipe("symmetric", per_channel=True)]
RECIPES += [Recipe("symmetric", element="int16"), Recipe("power_of_two", element="int16", per_channel=True)]


@pytest.fixture(scope="module")
def drawn_models():
    """Return random models with their inputs, drawn as hypothesis draws them in the passes' tests."""
    drawn = []

    @settings(max_examples=50, suppress_health_check=list(HealthCheck))
    @given(models(), st.sampled_from(RECIPES))
    def draw(model, schema):
        drawn.append((*model, schema))

    draw()
    return drawn


@pytest.mark.parametrize("compiler", COMPILERS)
def test_random_models_in_float_and_integers(drawn_models, tmp_path, compiler):
    cases = []
    for model, x, schema in drawn_models:
        dims = {"n": BATCH} if model.graph.input[0].type.tensor_type.shape.dim[0].dim_param else None
        program = mlhood.compile(
            model, quantization=schema, stop_after="lir", dims=dims, calibration={"x": x} if schema else None
        )
        cases.append((program, {"x": x}))
    results = run_all(cases, tmp_path / "c", compiler)
    for (program, inputs), actual in zip(cases, results, strict=True):
        for name, expected in execute(program, **inputs).items():
            close(actual[name], expected)


# -- names, refusals


def hostile_model(names):
    nodes = [helper.make_node("Relu", [names[i]], [names[i + 1]], name=names[i]) for i in range(len(names) - 2)]
    weight = helper.make_tensor(names[-1], 1, [2], [1.5, float("nan")])
    add = helper.make_node("Add", [names[-2], names[-1]], ["out"])
    infos = [helper.make_tensor_value_info(name, 1, [2]) for name in (names[0], "out")]
    graph = helper.make_graph([*nodes, add], "*/ #error ??/", infos[:1], infos[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)


@pytest.mark.parametrize("compiler", COMPILERS)
def test_names_may_hold_anything(tmp_path, compiler):
    names = [
        "int",
        "main",
        "*/ return 1; /*",
        "??/\n#error",
        "a\\\n",
        "ä\u202eb",
        "exp",
        "arena",
        "1",
        "_",
        "relu",
        "i",
    ]
    names += ["model_run", "case0_run", "relu_f32", "x" * 5000, "y", "NULL", "a b", "a-b", "weights.h", "%s"]
    program = optimize(lower(import_model(hostile_model(names))))
    x = np.array([-1, 2], np.float32)
    (outputs,) = run_all([(program, {"int": x})], tmp_path / "c", compiler)
    np.testing.assert_array_equal(outputs["out"], [1.5, np.nan])


def test_what_has_no_c_is_listed_at_once():
    nodes = [
        helper.make_node("EyeLike", ["x"], ["e"]),
        helper.make_node("Cast", ["x"], ["h"], to=10),
        helper.make_node("Relu", ["h"], ["r"]),
    ]
    infos = [helper.make_tensor_value_info(name, kind, [2, 2]) for name, kind in [("x", 1), ("e", 1), ("r", 10)]]
    graph = helper.make_graph(nodes, "g", infos[:1], infos[1:])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    with pytest.raises(CompilerError) as caught:
        write_source(lower(import_model(model)))
    assert "float16" in caught.value.parts["got"]
    assert "EyeLike" in caught.value.parts["got"]


def test_open_axes_are_refused(lenet_onnx):
    with pytest.raises(CompilerError, match="dynamic"):
        write_source(mlhood.compile(lenet_onnx, stop_after="lir"))


def test_large_constants_are_refused():
    weight = onnx.numpy_helper.from_array(np.zeros(2**24 + 1, np.float32), "w")
    infos = [helper.make_tensor_value_info(name, 1, [2**24 + 1]) for name in "xy"]
    graph = helper.make_graph([helper.make_node("Add", ["x", "w"], ["y"])], "g", infos[:1], infos[1:], [weight])
    model = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=8)
    with pytest.raises(CompilerError, match="too large"):
        write_source(lower(import_model(model)))
