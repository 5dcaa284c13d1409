"""The pipeline: its stops, invalid arguments, and its command."""

import re

import jax
import numpy as np
import onnx
import pytest
from jax.interpreters.mlir import make_ir_context
from jaxlib.mlir import ir
from typer.testing import CliRunner

import mlhood
from mlhood import exchange
from mlhood.cli import app
from mlhood.compiler.backends.interpreter import run as interpret
from mlhood.compiler.compile import STAGES, Executable
from mlhood.compiler.hir import Graph, verify
from mlhood.compiler.lir.execute import execute
from mlhood.compiler.lir.passes import optimize as optimize_program
from mlhood.compiler.lir.program import Program
from mlhood.compiler.lir.text import to_text
from mlhood.compiler.quantize import Recipe, profile, sqnr
from mlhood.compiler.quantize.report import constant_bytes
from mlhood.compiler.quantize.samples import samples
from mlhood.errors import CompilerError, ExchangeError, MlhoodError
from mlhood.models import digits


@pytest.fixture(scope="module")
def path(tmp_path_factory):
    target = tmp_path_factory.mktemp("models") / "lenet.onnx"
    exchange.lenet_onnx(target)
    return target


@pytest.fixture(scope="module")
def images():
    return digits().test_images


def command(*args):
    return CliRunner().invoke(app, ["compile", *map(str, args)])


def test_a_compiled_model_matches_onnx_runtime(path, images):
    compiled = mlhood.compile(path)
    assert isinstance(compiled, Executable)
    expected = exchange.run(path, image=images)["logits"]
    np.testing.assert_allclose(compiled.run(image=images)["logits"], expected, rtol=1e-4, atol=1e-3)
    assert [stage.name for stage in compiled.stages] == ["hir", "optimized"]


def test_bytes_and_protos_are_accepted(path):
    for model in (path.read_bytes(), onnx.load(path), str(path)):
        assert len(mlhood.compile(model, stop_after="hir").nodes) == 12


def test_a_quantised_model_runs_on_integers(path, images):
    compiled = mlhood.compile(path, quantization=Recipe("symmetric_unsigned", per_channel=True))
    logits, expected = compiled.run(image=images)["logits"], exchange.run(path, image=images)["logits"]
    assert logits.dtype == np.float32
    assert sqnr(expected, logits) > 30
    assert np.mean(logits.argmax(1) == expected.argmax(1)) > 0.98
    assert [stage.name for stage in compiled.stages] == ["hir", "optimized", "quantized"]
    _, optimized, quantized = (constant_bytes(stage.graph) for stage in compiled.stages)
    assert quantized < 0.3 * optimized


@pytest.mark.parametrize("stage", [stage for stage in STAGES if stage != "lir"])
def test_every_stop_returns_a_valid_graph(path, stage):
    graph = mlhood.compile(path, "cpu", quantization="power_of_two", stop_after=stage)
    assert isinstance(graph, Graph)
    verify(graph)
    assert any(value.type.quantization for value in graph.values()) == (stage in ("quantized", "lowered"))


@pytest.mark.parametrize("target", ["interpreter", "cpu"])
@pytest.mark.parametrize("quantization", [None, "power_of_two"])
def test_the_last_stop_returns_an_optimised_program(path, images, quantization, target):
    program = mlhood.compile(path, target, quantization=quantization, stop_after="lir", dims={"batch": 4})
    assert isinstance(program, Program)
    assert to_text(optimize_program(program)) == to_text(program)
    assert program.weights["image"].type.shape == (4, 1, 32, 32)
    expected = mlhood.compile(path, quantization=quantization).run(image=images[:4])["logits"]
    actual = execute(program, image=images[:4])["logits"]
    assert np.abs(actual - expected).max() <= (0 if target == "interpreter" else 1e-4) * np.abs(expected).max()


def test_calibration_is_a_batch_batches_or_a_profile(path, images):
    optimized = mlhood.compile(path, stop_after="optimized")
    batches = [{"image": images[:50]}, {"image": images[50:100]}]
    calibrations = ({"image": images[:100]}, batches, profile(optimized, batches))
    first, *others = (
        mlhood.compile(path, quantization="symmetric", calibration=data).run(image=images[:20])["logits"]
        for data in calibrations
    )
    for other in others:  # ranges differ in the last bit, because the batch size affects the order of summation
        np.testing.assert_allclose(other, first, atol=0.03 * np.abs(first).max())


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "gpu"}, "unknown target"),
        ({"stop_after": "lowest"}, "unknown stage"),
        ({"stop_after": "quantized"}, "needs a quantisation"),
        ({"stop_after": "lowered"}, "needs a target with kernels"),
        ({"stop_after": "lir", "dims": {"rows": 2}}, "no such dynamic axis"),
        ({"dims": {"length": 2}}, "no such dynamic axis"),
        ({"quantization": "octal"}, "octal"),
        ({"quantization": 8}, "invalid quantisation"),
        ({"quantization": "symmetric", "calibration": 8}, "invalid calibration data"),
        ({"quantization": "symmetric", "calibration": "data.npz"}, "must be given by name"),
        ({"quantization": "symmetric", "calibration": np.zeros((2, 1, 32, 32), np.float32)}, "must be given by name"),
        ({"quantization": "symmetric", "calibration": {"image": None}}, "wrong dtype"),
        ({"quantization": "symmetric", "calibration": {"photo": np.zeros(1)}}, "do not match the graph's"),
    ],
)
def test_invalid_options_raise(path, options, message):
    with pytest.raises(CompilerError, match=message):
        mlhood.compile(path, **options)


@pytest.mark.parametrize("model", [None, 3, Graph()], ids=lambda model: type(model).__name__)
def test_an_invalid_model_raises(model):
    with pytest.raises(ExchangeError, match="invalid type of model"):
        mlhood.compile(model)


def test_ragged_lists_are_rejected_as_input(path):
    with pytest.raises(CompilerError, match="cannot be converted to an array"):
        mlhood.compile(path).run(image=[[1.0], [1.0, 2.0]])


def test_models_without_default_data_need_calibration(new_model):
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    model = new_model([node], {"x": (onnx.TensorProto.FLOAT, ["n", 3])})
    with pytest.raises(CompilerError, match="npz"):
        mlhood.compile(model, quantization="symmetric")
    compiled = mlhood.compile(model, quantization="symmetric", calibration={"x": np.eye(3, dtype=np.float32)})
    assert isinstance(compiled, Executable)


def test_the_command_draws_prints_and_exports(path, images, tmp_path):
    drawing, model = tmp_path / "lenet.svg", tmp_path / "quantised.onnx"
    result = command(path, "--quantize", "power_of_two", "--draw", drawing, "--out", model, "--text", "hir")
    assert result.exit_code == 0, result.output
    assert [line.split()[0] for line in result.output.splitlines()[:3]] == ["hir", "optimized", "quantized"]
    assert "QuantizedConv" in result.output
    assert re.search(r"SQNR [34]\d\.\d dB; layer with most loss: \w+; kept in float: none", result.output)
    assert "<svg" in drawing.read_text(encoding="utf-8")
    got = exchange.run(model, image=images)["logits"]
    expected = mlhood.compile(path, quantization="power_of_two").run(image=images)["logits"]
    assert np.mean(got.argmax(1) == expected.argmax(1)) > 0.99


def test_the_command_reads_calibration_data_from_a_file(path, images, tmp_path):
    data = tmp_path / "data.npz"
    np.savez(data, image=images[:20])
    assert command(path, "--quantize", "symmetric", "--calibration", data).exit_code == 0
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    broken = command(path, "--quantize", "symmetric", "--calibration", tmp_path / "broken.npz")
    assert isinstance(broken.exception, CompilerError)
    assert "np.savez" in str(broken.exception)


def test_the_command_stops_after_a_stage(path, tmp_path):
    result = command(path, "--stop-after", "hir", "--draw", tmp_path / "a.png")
    assert result.exit_code == 0
    assert "optimized" not in result.output
    assert (tmp_path / "a.png").stat().st_size > 10_000


def test_the_command_prints_the_program(path):
    result = command(path, "--quantize", "symmetric", "--stop-after", "lir", "--dim", "batch=2")
    assert result.exit_code == 0, result.output
    lines = result.output.splitlines()
    assert [line.split()[0] for line in lines[:4]] == ["hir", "optimized", "quantized", "lir"]
    text = result.output.partition("function")[2]
    program = mlhood.compile(path, quantization="symmetric", stop_after="lir", dims={"batch": 2})
    assert isinstance(program, Program)
    assert "function" + text == to_text(program)


def test_the_command_prints_the_lowered_graph(path):
    result = command(path, "--target", "cpu", "--stop-after", "lowered", "--text", "hir")
    assert result.exit_code == 0, result.output
    assert "BlockedConv" in result.output
    assert result.output.splitlines()[2].startswith("lowered")


@pytest.mark.parametrize(
    ("stage", "quantization"),
    [("hir", None), ("optimized", None), ("lir", None), ("quantized", "asymmetric"), ("lir", "power_of_two")],
)
def test_mlir_verifies_the_stablehlo_that_the_command_prints_and_xla_runs_it(path, images, stage, quantization):
    quantize = [] if quantization is None else ["--quantize", quantization]
    result = command(path, "--stop-after", stage, *quantize, "--dim", "batch=2", "--text", "stablehlo")
    assert result.exit_code == 0, result.output
    text = "module @" + result.output.partition("module @")[2]
    with make_ir_context():
        assert ir.Module.parse(text).operation.verify()
    device = jax.devices("cpu")[0]
    (logits,) = device.client.compile_and_load(text, [device]).execute([jax.device_put(images[:2], device)])
    last = "quantized" if quantization else "hir"
    graph = mlhood.compile(path, quantization=quantization, stop_after=last, dims={"batch": 2})
    (expected,) = interpret(graph, image=images[:2]).values()
    np.testing.assert_allclose(logits, expected, rtol=1e-4, atol=0 if quantization else 1e-3)


def test_the_command_plans_the_memory(path, tmp_path):
    result = command(path, "--stop-after", "lir", "--dim", "batch=2", "--draw", tmp_path / "memory.svg")
    assert result.exit_code == 0, result.output
    assert "efficiency 1.000" in result.output
    assert (tmp_path / "memory.svg").read_bytes().startswith(b"<?xml")


def test_the_command_cuts_a_graph_for_the_neural_processor(path, tmp_path):
    drawing, out = tmp_path / "cut.svg", tmp_path / "out"
    files = ["--draw", drawing, "--out", out]
    result = command(path, "--quantize", "power_of_two", "--target", "nmp", "--text", "hir", *files)
    assert result.exit_code == 0, result.exception
    assert re.search(r"NMP 4x8: \d+ instructions, [\d,]+ cycles", result.output)
    assert "conv1" in result.output.partition("NMP 4x8")[2]
    assert sorted(file.name for file in out.iterdir()) == ["program.s", "report.csv"]
    assert "<svg" in drawing.read_text(encoding="utf-8")
    assert "--compare" in str(command(path, "--target", "nmp", "--compare", "cpu").exception)


@pytest.mark.parametrize("dim", ["batch", "batch=x", "=2", "batch=-1"])
def test_the_command_rejects_an_invalid_length(path, dim):
    result = command(path, "--stop-after", "lir", "--dim", dim)
    assert isinstance(result.exception, CompilerError)
    assert result.output == ""


@pytest.fixture
def reduce_path(new_model, tmp_path):
    """A sum over axes that are an input, of an input without a shape."""
    inputs = {"x": (onnx.TensorProto.FLOAT, None), "axes": (onnx.TensorProto.INT64, ["k"])}
    model = new_model([onnx.helper.make_node("ReduceSum", ["x", "axes"], ["y"])], inputs, rank=3)
    onnx.save(model, tmp_path / "reduce.onnx")
    return tmp_path / "reduce.onnx"


@pytest.mark.parametrize("target", ["interpreter", "cpu", "c"])
def test_the_command_takes_constants_and_shapes(reduce_path, tmp_path, target):
    out = ("--out", tmp_path / "out") if target == "c" else ()
    with_shape = (reduce_path, "--target", target, *out, "--shape", "x=batch,3,4")
    needed = command(*with_shape)
    assert "--constant axes=" in str(needed.exception)
    for given in ("axes=1,2", "axes=[1, 2]", "axes=1"):
        result = command(*with_shape, "--constant", given)
        assert result.exit_code == 0, result.exception


def test_constants_and_shapes_give_the_results_of_onnx_runtime(reduce_path):
    x = np.arange(24, dtype=np.float32).reshape(2, 3, 4)
    given = {"constants": {"axes": [1, 2]}, "shapes": {"x": ("n", 3, 4)}}
    expected = exchange.run(reduce_path, x=x, axes=np.array([1, 2]))["y"]
    np.testing.assert_array_equal(mlhood.compile(reduce_path, **given).run(x=x)["y"], expected)
    assert mlhood.compile(reduce_path, stop_after="hir", dims={"n": 2}, **given).value("y").type.shape == (2, 1, 1)


@pytest.mark.parametrize(
    ("option", "value", "message"),
    [
        ("--constant", "axes", "invalid --constant"),
        ("--constant", "=1", "invalid --constant"),
        ("--constant", "axes=1;2", "invalid --constant"),
        ("--constant", "axes=" + "[" * 100_000, "invalid --constant"),
        ("--constant", "axes=1.5", "element type of its input"),
        ("--constant", "axis=1", "did you mean axes?"),
        ("--shape", "3,4", "invalid --shape"),
        ("--shape", "z=3,4", "unknown input"),
    ],
)
def test_the_command_refuses_what_is_not_of_the_inputs(reduce_path, option, value, message):
    result = command(reduce_path, "--shape", "x=3,4", option, value)
    assert isinstance(result.exception, CompilerError)
    assert message in str(result.exception)


NAMES = ["self", "inputs", "path", "graph", "a/b:0", "\u540d\u524d", "'\"", "a\nb", "{x}", "<b>&", "\x1b[31m", " "]


@pytest.mark.parametrize("name", NAMES)
def test_any_name_works_as_an_input(new_model, tmp_path, name):
    nodes = [
        onnx.helper.make_node("Relu", [name], [f"r{name}"], name),
        onnx.helper.make_node("Neg", [f"r{name}"], ["y"]),
    ]
    model = new_model(nodes, {name: (onnx.TensorProto.FLOAT, [3])})
    x = np.float32([-1, 0, 2])
    expected = -np.maximum(x, 0)
    for target in ("interpreter", "cpu"):
        executable = mlhood.compile(model, target)
        for outputs in (executable.run(**{name: x}), executable.run({name: x})):
            np.testing.assert_array_equal(outputs["y"], expected)
    assert "ElementwiseChain" in executable.profile({name: x}, rounds=1).to_string()
    assert "ElementwiseChain" in executable.report({name: x}, rounds=1)._repr_html_()
    program = mlhood.compile(model, stop_after="lir")
    np.testing.assert_array_equal(execute(program, **{name: x})["y"], expected)
    np.testing.assert_array_equal(interpret(mlhood.compile(model, stop_after="hir"), **{name: x})["y"], expected)
    np.testing.assert_array_equal(exchange.run(model, x)["y"], expected)


def test_inputs_are_named(path):
    for arguments in ([np.ones(3)], [[1, 2]]):
        with pytest.raises(CompilerError, match="inputs must be given by name"):
            mlhood.compile(path).run(*arguments)


@pytest.mark.parametrize("node", ["Identity", "Flatten"])
def test_the_command_reports_that_nothing_is_lost(new_model, tmp_path, node):
    model = new_model([onnx.helper.make_node(node, ["x"], ["y"])], {"x": (onnx.TensorProto.FLOAT, ["n", 3])})
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.eye(3, dtype=np.float32))
    result = command(tmp_path / "model.onnx", "--quantize", "symmetric", "--calibration", tmp_path / "data.npz")
    assert result.exit_code == 0, result.exception
    assert "layer with most loss: none" in result.output


@pytest.mark.parametrize(
    "options",
    [("--draw", "a.jpg"), ("--draw", "missing/a.svg"), ("--out", "missing/a.onnx"), ("--element", "int16")],
)
def test_the_command_validates_its_options_before_compiling(path, options):
    result = command(path, *options)
    assert isinstance(result.exception, MlhoodError)
    assert result.output == ""


def test_the_command_rejects_a_missing_file(tmp_path):
    assert isinstance(command(tmp_path / "nothing.onnx").exception, ExchangeError)


@pytest.mark.parametrize(
    ("shape", "expected"), [(["n", 3, 50, 64], (2, 3, 50, 64)), ([1, 3, 224, 224], (1, 3, 224, 224))]
)
def test_photographs_are_cropped_to_the_models_input(new_model, shape, expected):
    node = onnx.helper.make_node("Relu", ["photo"], ["y"])
    graph = mlhood.compile(new_model([node], {"photo": (onnx.TensorProto.FLOAT, shape)}), stop_after="hir")
    assert isinstance(graph, Graph)
    assert samples(graph)["photo"].shape == expected


@pytest.mark.parametrize("shape", [["n", 3, 300, 64], ["n", 3, "h", "w"], ["n", 2, 32, 32], ["n", 3]])
def test_other_inputs_have_no_default_data(new_model, shape):
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = mlhood.compile(new_model([node], {"x": (onnx.TensorProto.FLOAT, shape)}), stop_after="hir")
    assert isinstance(graph, Graph)
    with pytest.raises(CompilerError, match="no default calibration data"):
        samples(graph)


def test_lengths_of_axes_hold_for_every_stage(path, images):
    for stage in ("hir", "optimized"):
        graph = mlhood.compile(path, stop_after=stage, dims={"batch": 2})
        assert graph.placeholders["image"].type.shape == (2, 1, 32, 32)
    executable = mlhood.compile(path, "cpu", dims={"batch": 2})
    expected = mlhood.compile(path).run(image=images[:2])["logits"]
    np.testing.assert_allclose(executable.run(image=images[:2])["logits"], expected, rtol=1e-4, atol=1e-4)
    with pytest.raises(CompilerError, match="shape"):
        executable.run(image=images[:3])


@pytest.mark.parametrize("dims", [["batch"], {"batch": -1}, {"batch": "two"}, {"batch": True}])
def test_invalid_lengths_of_axes_are_refused(path, dims):
    with pytest.raises(CompilerError, match=r"length|axis|type"):
        mlhood.compile(path, dims=dims)


def test_the_command_takes_more_calibration_data_than_a_batch(path, images, tmp_path):
    np.savez(tmp_path / "calibration.npz", image=images[:5])
    options = ["--calibration", tmp_path / "calibration.npz", "--quantize", "symmetric", "--dim", "batch=2"]
    result = command(path, *options)
    assert result.exit_code == 0, result.exception
    assert "on the calibration data: SQNR" in result.output
