"""The CPU target against the interpreter: networks, ONNX's tests, random graphs, bounds, threads."""

from dataclasses import replace

import numpy as np
import pytest
from onnx import TensorProto, helper, numpy_helper

import mlhood
from mlhood import exchange
from mlhood.compiler.backends.cpu.lowering import lower_for_cpu
from mlhood.compiler.backends.cpu.machine import CpuSetup, WeightCache
from mlhood.compiler.backends.cpu.native_program import NativeProgram
from mlhood.compiler.backends.cpu.runner import Cpu
from mlhood.compiler.backends.interpreter import Interpreter
from mlhood.compiler.compile import compile
from mlhood.compiler.lir.lowering import lower
from mlhood.compiler.lir.passes import optimize
from mlhood.compiler.quantize import Recipe
from mlhood.errors import CompilerError
from mlhood.kernels.codegen.target import PORTABLE, host
from mlhood.models import mobilenet_v2, resnet50
from tests.compiler.backends.cpu.comparing import assert_agree
from tests.compiler.corpus import with_constants
from tests.compiler.random_models import network
from tests.kernels.guards import use_threads
from tests.tools.compiler import conformance as suite

SCHEMAS = ("asymmetric", "symmetric", "symmetric_unsigned", "power_of_two")
GRAPHS = 2000
PARTS = 40
GUARD = 128


@pytest.fixture(scope="module")
def lenet(tmp_path_factory):
    path = tmp_path_factory.mktemp("lenet") / "lenet.onnx"
    exchange.lenet_onnx(path)
    return path


def images(shape, seed=0):
    return np.random.default_rng(seed).standard_normal(shape).astype(np.float32)


def graph_of(seed):
    model, inputs = network(seed)
    return compile(model.SerializeToString(), stop_after="optimized"), inputs


# -- networks


@pytest.mark.parametrize("batch", [3, pytest.param(1, marks=pytest.mark.exhaustive)])
def test_networks_agree_with_the_interpreter(lenet, resnet18_onnx, batch):
    for path, size in ((lenet, (1, 32, 32)), (resnet18_onnx, (3, 64, 64))):
        graph = compile(path, stop_after="optimized")
        inputs = {next(iter(graph.placeholders)): images((batch, *size))}
        assert_agree(graph, Cpu(graph).run(inputs), inputs)


def test_a_compiled_network_runs_in_one_native_call(resnet18_onnx):
    executable = compile(resnet18_onnx, target="cpu")
    assert [stage.name for stage in executable.stages] == ["hir", "optimized", "lowered"]
    runner = Cpu(executable.graph)
    program = runner.plan(((1, 3, 64, 64),))
    assert all(step.selection for step in program.steps)
    assert program.segments == ((0, len(program.sequence.calls)),)


def test_every_shape_gets_a_plan_and_results_stay_valid(lenet):
    runner = Cpu(compile(lenet, stop_after="optimized"))
    results = [runner.run({"image": images((batch, 1, 32, 32), batch)})["logits"] for batch in (1, 3, 1, 0)]
    assert [result.shape for result in results] == [(1, 10), (3, 10), (1, 10), (0, 10)]
    again = runner.run({"image": images((1, 1, 32, 32), 9)})["logits"]
    assert runner.activation_bytes == runner.plan(((1, 1, 32, 32),)).plan.bytes
    assert (results[0] == results[2]).all()
    assert (again != results[0]).any()


def test_inputs_in_other_orders_in_memory_are_converted(lenet):
    runner = Cpu(compile(lenet, stop_after="optimized"))
    x = images((2, 1, 32, 32))
    expected = runner.run({"image": x})["logits"]
    for other in (np.asfortranarray(x), np.repeat(x, 2, axis=3)[..., ::2]):
        np.testing.assert_array_equal(runner.run({"image": other})["logits"], expected)


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({}, "do not match"),
        ({"image": np.zeros((1, 1, 32, 32))}, "wrong dtype"),
        ({"image": np.zeros((1, 1, 31, 32), np.float32)}, "wrong shape"),
        ({"picture": np.zeros((1, 1, 32, 32), np.float32)}, "do not match"),
    ],
)
def test_wrong_inputs_are_refused_before_and_after_a_run(lenet, inputs, message):
    runner = Cpu(compile(lenet, stop_after="optimized"))
    for _ in range(2):
        with pytest.raises(CompilerError, match=message):
            runner.run(inputs)
        runner.run({"image": images((1, 1, 32, 32))})


def test_the_executable_profiles_the_lowered_graph(lenet):
    table = mlhood.compile(lenet, target="cpu").profile(image=images((1, 1, 32, 32)), rounds=2)
    assert table["operator"].iloc[0] == "BlockedConv"
    assert table["macs"].sum() == 28 * 28 * 6 * 25 + 10 * 10 * 16 * 150 + 400 * 120 + 120 * 84 + 84 * 10


def test_the_executable_reports_how_each_node_uses_the_processor(lenet):
    executable = mlhood.compile(lenet, target="cpu")
    table = executable.report(image=images((1, 1, 32, 32)), rounds=2)
    assert table.loc["conv1", "kernel"] == "direct"
    assert table["layout"].tolist()[:4] == ["blocked"] * 4
    assert "view" in set(table["kernel"])
    fc1 = table.loc["fc1"]
    assert fc1["bytes"] == 4 * (400 + 400 * 120 + 120 + 120)
    assert fc1["GFLOP/s"] == pytest.approx(2e-9 * 400 * 120 / fc1["seconds"])
    assert fc1["GB/s"] == pytest.approx(1e-9 * fc1["bytes"] / fc1["seconds"])
    assert (table["peak"] >= 0).all()
    interpreted = mlhood.compile(lenet).report(image=images((1, 1, 32, 32)), rounds=1)
    assert set(interpreted["kernel"]) == {""}


@pytest.mark.parametrize("network", ["resnet18_onnx", pytest.param("mobilenet_onnx", marks=pytest.mark.exhaustive)])
def test_the_arena_holds_what_is_live_and_little_more(network, request):
    assert_arena_is_dense(request.getfixturevalue(network))


@pytest.mark.slow
@pytest.mark.exhaustive
@pytest.mark.parametrize("build", [mobilenet_v2, resnet50])
def test_the_arena_of_a_large_network_holds_what_is_live_and_little_more(build, tmp_path):
    image = np.zeros((1, 3, 224, 224), np.float32)
    assert_arena_is_dense(exchange.export(build().eval(), image, tmp_path / "network.onnx"))


def assert_arena_is_dense(path):
    program = optimize(lower(lower_for_cpu(compile(path, stop_after="optimized"), host()), {"batch": 1}))
    plan = NativeProgram(program, CpuSetup(host(), 1, WeightCache(), exact=False)).plan
    assert plan.live_maximum <= plan.bytes <= 1.05 * plan.live_maximum


@pytest.mark.parametrize("schema", SCHEMAS)
@pytest.mark.parametrize(("element", "per_channel"), [("int8", True), ("uint8", False)])
def test_quantised_networks_give_the_integers_of_the_interpreter(lenet, resnet18_onnx, schema, element, per_channel):
    """And so the same outputs, bit for bit: only the conversions at the ends are floating-point."""
    networks = [(lenet, (2, 1, 32, 32))]
    if element == "int8" and schema == "asymmetric":
        networks.append((resnet18_onnx, (1, 3, 64, 64)))
    for path, size in networks:
        recipe = Recipe(schema, element=element, per_channel=per_channel)
        name = next(iter(compile(path, stop_after="hir").placeholders))
        data = {name: images(size)}
        graph = compile(path, quantization=recipe, stop_after="quantized", calibration=data)
        runner = Cpu(graph)
        for seed, threads in ((1, 1), (2, 2)):
            inputs = {name: 3 * images(size, seed)}  # beyond the calibrated range, too
            with use_threads(threads):
                actual = runner.run(inputs)
            for output, expected in Interpreter(graph).run(inputs).items():
                np.testing.assert_array_equal(actual[output], expected)
        program = next(iter(runner.plans.values()))
        assert all(step.selection for step in program.steps)


def test_values_that_are_not_finite_reach_exactly_what_depends_on_them(resnet18_onnx):
    """Winograd's convolutions would spread them, so that the run is repeated without."""
    graph = compile(resnet18_onnx, stop_after="optimized")
    name = next(iter(graph.placeholders))
    runner, x = Cpu(graph), images((2, 3, 64, 64))
    x[0, 1, 5, 5], x[0, 0, 60, 3] = np.nan, np.inf
    assert_agree(graph, runner.run({name: x}), {name: x})
    assert len(runner.plans) == 2
    runner.run({name: images((2, 3, 64, 64))})
    assert len(runner.plans) == 2


# -- what has no kernel


def test_every_case_of_the_backend_suite_that_the_interpreter_passes():
    """With weights as constants, which some kernels pack; `test_node_suite` has them as inputs."""
    passed = 0
    for case in suite.tier_cases():
        if len(case.model.graph.input) > 1 and case.suite == "node":
            data = [(inputs[:1], outputs) for inputs, outputs in case.data[:1]]
            case = replace(case, model=with_constants(case), data=data)
        if suite.passes(case):
            case.run(backend="cpu")
            passed += 1
    assert passed > 250


# -- random graphs


@pytest.mark.parametrize("part", [0, *(pytest.param(i, marks=pytest.mark.exhaustive) for i in range(1, PARTS))])
def test_random_graphs_agree_with_the_interpreter(part):
    for seed in range(part, GRAPHS, PARTS):
        graph, inputs = graph_of(seed)
        with use_threads(1 + seed % 2):
            assert_agree(graph, Cpu(graph).run(inputs), inputs)


def test_a_program_that_needs_more_memory_than_the_limit_is_refused():
    nodes = [helper.make_node("Expand", ["x", "shape"], ["y"])]
    shape = numpy_helper.from_array(np.array([40_000, 40_000], np.int64), "shape")
    x = helper.make_tensor_value_info("x", TensorProto.FLOAT, [1])
    y = helper.make_tensor_value_info("y", TensorProto.FLOAT, [40_000, 40_000])
    model = helper.make_model(helper.make_graph(nodes, "large", [x], [y], [shape]), ir_version=8)
    with pytest.raises(CompilerError, match="more memory than the limit"):
        compile(model.SerializeToString(), target="cpu")


@pytest.mark.parametrize("target", [host(), PORTABLE], ids=lambda target: target.name)
def test_nothing_is_written_out_of_bounds(target):
    for seed in range(0, 60, 3):
        graph, inputs = graph_of(seed)
        runner = Cpu(graph, target)
        dims = {"n": next(iter(inputs.values())).shape[0]} if "n" in str(graph.placeholders["x"].type.shape) else {}
        program = optimize(lower(runner.graph, dims))
        native = NativeProgram(
            program, CpuSetup(target, 1 + seed % 2, WeightCache(), exact=bool(seed % 3)), guard=GUARD
        )
        native.arena[:] = 0xFF
        before = native.arena.copy()
        outputs = native.run(inputs)
        if not native.is_invalid:
            assert_agree(graph, outputs, inputs)
        for buffer in native.plan.lifetimes:
            end = native.plan.offsets[buffer.name] + buffer.bytes
            np.testing.assert_array_equal(native.arena[end - GUARD : end], before[end - GUARD : end], buffer.name)


def test_any_number_of_threads_gives_the_same_bits(resnet18_onnx):
    for graph, inputs in [graph_of(seed) for seed in range(8)]:
        results = []
        for threads in (1, 2, 3):
            with use_threads(threads):
                results.append(Cpu(graph).run(inputs))
        for name in results[0]:
            assert all(np.array_equal(results[0][name], other[name], equal_nan=True) for other in results[1:])
    graph = compile(resnet18_onnx, stop_after="optimized")
    runner, x = Cpu(graph), {next(iter(graph.placeholders)): images((2, 3, 64, 64))}
    results = []
    for threads in (1, 2, 1, 3):
        with use_threads(threads):
            results.append(next(iter(runner.run(x).values())))
    assert all((result == results[0]).all() for result in results)


def test_observed_values_are_those_of_the_lowered_graph():
    for seed in range(6):
        graph, inputs = graph_of(seed)
        runner = Cpu(graph)
        seen, expected = {}, {}
        runner.run(inputs, lambda value, array, seen=seen: seen.update({value.name: array.copy()}))
        Interpreter(runner.graph).run(
            inputs, lambda value, array, expected=expected: expected.update({value.name: array.copy()})
        )
        assert seen.keys() == expected.keys()


def test_constants_that_are_views_are_read_element_by_element(new_model):
    nodes = [
        helper.make_node("Expand", ["one", "shape"], ["ones"]),
        helper.make_node("Transpose", ["matrix"], ["transposed"], perm=[1, 0]),
        helper.make_node("Add", ["x", "ones"], ["sum"]),
        helper.make_node("Mul", ["sum", "transposed"], ["y"]),
    ]
    matrix = np.arange(12, dtype=np.float32).reshape(3, 4)
    initializers = {"one": np.float32(1), "shape": np.array([4, 3]), "matrix": matrix}
    model = new_model(nodes, {"x": (TensorProto.FLOAT, [4, 3])}, initializers, outputs=["y", "ones"])
    x = np.ones((4, 3), np.float32)
    outputs = compile(model, target="cpu").run(x=x)
    np.testing.assert_array_equal(outputs["y"], 2 * matrix.T)
    np.testing.assert_array_equal(outputs["ones"], x)


def test_a_result_is_overwritten_only_if_nobody_holds_it(lenet):
    runner, draws = Cpu(compile(lenet, stop_after="optimized")), [images((2, 1, 32, 32), seed) for seed in range(3)]

    def run(seed):
        return runner.run({"image": draws[seed]})["logits"]

    expected = [run(seed).copy() for seed in range(3)]
    held = run(0)
    view = held[1:, ::2]
    del held
    other = run(1)
    assert np.array_equal(view, expected[0][1:, ::2])
    assert np.array_equal(run(2), expected[2])
    assert np.array_equal(other, expected[1])
    address = run(0).ctypes.data
    assert run(1).ctypes.data == address
