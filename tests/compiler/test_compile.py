"""The pipeline: its stops, what it refuses, and its command."""

import re

import numpy as np
import onnx
import pytest
from typer.testing import CliRunner

import mlhood
from mlhood import exchange
from mlhood.cli import app
from mlhood.compiler.compile import STAGES, Executable
from mlhood.compiler.hir import Graph, verify
from mlhood.compiler.quantize import Recipe, profile, sqnr
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


def test_what_is_compiled_runs_as_onnx_runtime_does(path, images):
    compiled = mlhood.compile(path)
    assert isinstance(compiled, Executable)
    want = exchange.run(path, image=images)["logits"]
    np.testing.assert_allclose(compiled.run(image=images)["logits"], want, rtol=1e-4, atol=1e-3)
    assert list(compiled.report().index) == ["hir", "optimized"]


def test_bytes_and_protos_are_taken_as_well(path):
    for model in (path.read_bytes(), onnx.load(path), str(path)):
        assert len(mlhood.compile(model, stop_after="hir").nodes) == 12


def test_a_quantised_model_runs_on_integers(path, images):
    compiled = mlhood.compile(path, quantization=Recipe("symmetric_unsigned", per_channel=True))
    logits, want = compiled.run(image=images)["logits"], exchange.run(path, image=images)["logits"]
    assert logits.dtype == np.float32
    assert sqnr(want, logits) > 30
    assert np.mean(logits.argmax(1) == want.argmax(1)) > 0.98
    report = compiled.report()
    assert list(report.index) == list(STAGES)
    assert report["constant bytes"]["quantized"] < 0.3 * report["constant bytes"]["optimized"]


@pytest.mark.parametrize("stage", STAGES)
def test_every_stop_gives_a_sound_graph(path, stage):
    graph = mlhood.compile(path, quantization="power_of_two", stop_after=stage)
    assert isinstance(graph, Graph)
    verify(graph)
    assert any(value.type.quantization for value in graph.values()) == (stage == "quantized")


def test_calibration_is_a_batch_batches_or_a_profile(path, images):
    optimized = mlhood.compile(path, stop_after="optimized")
    batches = [{"image": images[:50]}, {"image": images[50:100]}]
    ways = ({"image": images[:100]}, batches, profile(optimized, batches))
    one, *others = (
        mlhood.compile(path, quantization="symmetric", calibration=way).run(image=images[:20])["logits"] for way in ways
    )
    for other in others:  # ranges differ in the last bit, as sums do with the number of images at once
        np.testing.assert_allclose(other, one, atol=0.03 * np.abs(one).max())


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"target": "gpu"}, "no such target"),
        ({"stop_after": "lowest"}, "no such stage"),
        ({"stop_after": "quantized"}, "how to quantise"),
        ({"quantization": "octal"}, "octal"),
        ({"quantization": 8}, "does not say how to quantise"),
        ({"quantization": "symmetric", "calibration": 8}, "no data to profile with"),
        ({"quantization": "symmetric", "calibration": "data.npz"}, "given by name"),
        ({"quantization": "symmetric", "calibration": np.zeros((2, 1, 32, 32), np.float32)}, "given by name"),
        ({"quantization": "symmetric", "calibration": {"image": None}}, "wrong dtype"),
        ({"quantization": "symmetric", "calibration": {"photo": np.zeros(1)}}, "not the graph's inputs"),
    ],
)
def test_wrong_wishes_are_refused(path, options, said):
    with pytest.raises(CompilerError, match=said):
        mlhood.compile(path, **options)


@pytest.mark.parametrize("model", [None, 3, Graph()], ids=lambda model: type(model).__name__)
def test_what_is_no_model_is_refused(model):
    with pytest.raises(ExchangeError, match="no model"):
        mlhood.compile(model)


def test_lists_of_different_lengths_are_no_input(path):
    with pytest.raises(CompilerError, match="no array"):
        mlhood.compile(path).run(image=[[1.0], [1.0, 2.0]])


def test_models_without_data_of_ours_ask_for_calibration(new_model):
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    model = new_model([node], {"x": (onnx.TensorProto.FLOAT, ["n", 3])})
    with pytest.raises(CompilerError, match="npz"):
        mlhood.compile(model, quantization="symmetric")
    compiled = mlhood.compile(model, quantization="symmetric", calibration={"x": np.eye(3, dtype=np.float32)})
    assert isinstance(compiled, Executable)


def test_the_command_draws_prints_and_exports(path, images, tmp_path):
    drawing, written = tmp_path / "lenet.svg", tmp_path / "quantised.onnx"
    done = command(path, "--quantize", "power_of_two", "--draw", drawing, "--export", written, "--text")
    assert done.exit_code == 0, done.output
    assert [line.split()[0] for line in done.output.splitlines()[:3]] == list(STAGES)
    assert "QuantizedConv" in done.output
    assert re.search(r"SQNR [34]\d\.\d dB; most is lost in \w+; kept in float: nothing", done.output)
    assert "<svg" in drawing.read_text(encoding="utf-8")
    got = exchange.run(written, image=images)["logits"]
    want = mlhood.compile(path, quantization="power_of_two").run(image=images)["logits"]
    assert np.mean(got.argmax(1) == want.argmax(1)) > 0.99


def test_the_command_takes_calibration_data_from_a_file(path, images, tmp_path):
    data = tmp_path / "data.npz"
    np.savez(data, image=images[:20])
    assert command(path, "--quantize", "symmetric", "--calibration", data).exit_code == 0
    (tmp_path / "broken.npz").write_bytes(b"nothing")
    broken = command(path, "--quantize", "symmetric", "--calibration", tmp_path / "broken.npz")
    assert isinstance(broken.exception, CompilerError)
    assert "np.savez" in str(broken.exception)


def test_the_command_stops_where_it_is_told(path, tmp_path):
    done = command(path, "--stop-after", "hir", "--draw", tmp_path / "a.png")
    assert done.exit_code == 0
    assert "optimized" not in done.output
    assert (tmp_path / "a.png").stat().st_size > 10_000


@pytest.mark.parametrize("node", ["Identity", "Flatten"])
def test_the_command_says_that_nothing_is_lost(new_model, tmp_path, node):
    model = new_model([onnx.helper.make_node(node, ["x"], ["y"])], {"x": (onnx.TensorProto.FLOAT, ["n", 3])})
    onnx.save(model, tmp_path / "model.onnx")
    np.savez(tmp_path / "data.npz", x=np.eye(3, dtype=np.float32))
    done = command(tmp_path / "model.onnx", "--quantize", "symmetric", "--calibration", tmp_path / "data.npz")
    assert done.exit_code == 0, done.exception
    assert "most is lost in no layer" in done.output


@pytest.mark.parametrize(
    "options",
    [("--draw", "a.jpg"), ("--draw", "missing/a.svg"), ("--export", "missing/a.onnx"), ("--element", "int16")],
)
def test_the_command_refuses_before_it_compiles(path, options):
    done = command(path, *options)
    assert isinstance(done.exception, MlhoodError)
    assert done.output == ""


def test_the_command_names_a_missing_file(tmp_path):
    assert isinstance(command(tmp_path / "nothing.onnx").exception, ExchangeError)


@pytest.mark.parametrize(("shape", "taken"), [(["n", 3, 50, 64], (2, 3, 50, 64)), ([1, 3, 224, 224], (1, 3, 224, 224))])
def test_photographs_are_cut_to_what_a_model_takes(new_model, shape, taken):
    node = onnx.helper.make_node("Relu", ["photo"], ["y"])
    graph = mlhood.compile(new_model([node], {"photo": (onnx.TensorProto.FLOAT, shape)}), stop_after="hir")
    assert isinstance(graph, Graph)
    assert samples(graph)["photo"].shape == taken


@pytest.mark.parametrize("shape", [["n", 3, 300, 64], ["n", 3, "h", "w"], ["n", 2, 32, 32], ["n", 3]])
def test_other_images_are_not_made_up(new_model, shape):
    node = onnx.helper.make_node("Relu", ["x"], ["y"])
    graph = mlhood.compile(new_model([node], {"x": (onnx.TensorProto.FLOAT, shape)}), stop_after="hir")
    assert isinstance(graph, Graph)
    with pytest.raises(CompilerError, match="no data that this model takes"):
        samples(graph)
