"""Reading: each kind of invalid file has its own error."""

import gzip
import io
import json
import subprocess
import sys
import zipfile

import numpy as np
import onnx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from onnx import TensorProto, helper, numpy_helper

from mlhood.errors import ExchangeError
from mlhood.exchange import load, run


def small(**options):
    """An Add of two vectors; options override what the tests invalidate."""
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [3]) for name in "abc"]
    node = helper.make_node(options.pop("op", "Add"), ["a", "b"], ["c"], "sum", domain=options.pop("domain", ""))
    graph = helper.make_graph([node], "g", values[:2], values[2:])
    opsets = options.pop("opsets", [("", 20)])
    options.setdefault("ir_version", 10)
    return helper.make_model(graph, opset_imports=[helper.make_opsetid(*entry) for entry in opsets], **options)


def archive():
    buffer = io.BytesIO()
    with zipfile.ZipFile(buffer, "w") as file:
        file.writestr("data.pkl", b"x" * 100)
    return buffer.getvalue()


def test_path_bytes_and_proto(lenet_onnx):
    models = [
        load(lenet_onnx),
        load(str(lenet_onnx)),
        load(lenet_onnx.read_bytes()),
        load(onnx.load(lenet_onnx)),
    ]
    assert len({model.SerializeToString(deterministic=True) for model in models}) == 1


def test_a_tensorflow_lenet_loads(tf_lenet, lenet, lenet_onnx):
    x = np.random.default_rng(0).normal(size=(2, 1, 32, 32)).astype(np.float32)
    ours = run(lenet_onnx, x)["logits"]
    theirs = run(load(tf_lenet), x.transpose(0, 2, 3, 1))["logits:0"]
    np.testing.assert_allclose(theirs, ours, rtol=1e-4, atol=1e-5)


@pytest.mark.parametrize(
    ("data", "got"),
    [
        (b"\x89PNG\r\n\x1a\n" + b"\0" * 50, "a PNG image"),
        (b"%PDF-1.4 ...", "a PDF document"),
        (archive(), "a ZIP archive"),
        (gzip.compress(b"model", mtime=0), "a gzip archive"),
        (json.dumps({"cells": []}).encode(), "JSON text"),
        (b"<!doctype html><p>404", "HTML"),
        (b"just some text\n", "15 bytes that start with"),
        (b"\0" * 100, "100 bytes"),
    ],
)
def test_a_file_that_is_not_onnx(tmp_path, data, got):
    path = tmp_path / "model.onnx"
    path.write_bytes(data)
    with pytest.raises(ExchangeError, match="not an ONNX file") as caught:
        load(path)
    assert got in caught.value.parts["got"]
    assert caught.value.parts["where"] == str(path)
    assert caught.value.parts["what to do"]


def test_an_empty_file_and_a_missing_one_and_a_folder(tmp_path):
    (tmp_path / "empty.onnx").touch()
    for path, message in (
        (tmp_path / "empty.onnx", "empty"),
        (tmp_path / "no", "no such file"),
        (tmp_path, "folder"),
    ):
        with pytest.raises(ExchangeError, match=message):
            load(path)


def test_every_truncation_raises():
    data = small().SerializeToString()
    for length in range(len(data)):
        with pytest.raises(ExchangeError, match=r"truncated|empty|not an ONNX file"):
            load(data[:length])


def test_a_large_file_cut_in_half_is_reported_as_truncated(lenet_onnx):
    data = lenet_onnx.read_bytes()
    with pytest.raises(ExchangeError, match="truncated") as caught:
        load(data[: len(data) // 2])
    assert "bytes, incomplete" in caught.value.parts["got"]


@settings(max_examples=200, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow])
@given(data=st.data())
def test_corruption_gives_a_model_or_an_exchange_error(data):
    corrupted = bytearray(small().SerializeToString())
    for _ in range(data.draw(st.integers(1, 4))):
        corrupted[data.draw(st.integers(0, len(corrupted) - 1))] = data.draw(st.integers(0, 255))
    try:
        load(bytes(corrupted))
    except ExchangeError as error:
        assert error.parts  # noqa: PT017 (both outcomes are valid)


@given(st.binary(max_size=200))
def test_noise_is_never_a_model(data):
    with pytest.raises(ExchangeError):
        load(data)


@pytest.mark.parametrize(
    ("options", "expected", "got"),
    [
        ({"opsets": [("", 999)]}, "opset 1 to", "opset 999"),
        ({"ir_version": 99}, "IR version", "IR version 99"),
    ],
)
def test_versions_from_the_future(options, expected, got):
    with pytest.raises(ExchangeError, match="unsupported ONNX version") as caught:
        load(small(**options))
    assert expected in caught.value.parts["expected"]
    assert onnx.__version__ in caught.value.parts["expected"]
    assert caught.value.parts["got"] == got


def test_operators_of_an_unknown_domain():
    with pytest.raises(ExchangeError, match="unknown domain") as caught:
        load(small(op="Fancy", domain="my.company", opsets=[("", 20), ("my.company", 1)]))
    assert caught.value.parts["got"] == "my.company::Fancy"
    assert "'sum'" in caught.value.parts["where"]


def test_functions_defined_in_the_file_are_accepted():
    body = helper.make_node("Add", ["x", "y"], ["z"])
    opset = [helper.make_opsetid("", 20)]
    function = helper.make_function("mine", "Fancy", ["x", "y"], ["z"], [body], opset)
    model = small(op="Fancy", domain="mine", opsets=[("", 20), ("mine", 1)], functions=[function])
    assert len(load(model).functions) == 1


def test_an_invalid_graph_raises_a_one_line_error():
    unknown = small()
    unknown.graph.node[0].input[0] = "undefined"
    shapes = small()
    shapes.graph.input[0].type.tensor_type.shape.dim[0].dim_value = 4
    for model, message in (
        (unknown, "undefined"),
        (small(op="NoSuchOperator"), "NoSuchOperator"),
        (shapes, "imension"),
    ):
        with pytest.raises(ExchangeError, match="graph is invalid") as caught:
            load(model)
        assert message in caught.value.parts["got"]
        assert "\n" not in caught.value.parts["got"]


@pytest.fixture
def external(tmp_path, lenet_onnx):
    model = onnx.load(lenet_onnx)
    path = tmp_path / "model.onnx"
    onnx.save(model, path, save_as_external_data=True, location="weights.bin", size_threshold=0)
    return path


def test_external_data_is_read(external, lenet_onnx):
    x = np.ones((1, 1, 32, 32), np.float32)
    np.testing.assert_array_equal(run(external, x)["logits"], run(lenet_onnx, x)["logits"])


def test_missing_external_data_is_named(external):
    (external.parent / "weights.bin").unlink()
    with pytest.raises(ExchangeError, match="another file, which cannot be read") as caught:
        load(external)
    assert "weights.bin" in caught.value.parts["expected"]
    assert "conv1.weight" in caught.value.parts["where"]
    with pytest.raises(ExchangeError, match="another file") as caught:
        load(external.read_bytes())
    assert "not given as a path" in caught.value.parts["got"]


def test_truncated_external_data_raises(external):
    weights = external.parent / "weights.bin"
    weights.write_bytes(weights.read_bytes()[:100])
    with pytest.raises(ExchangeError):
        run(external, np.ones((1, 1, 32, 32), np.float32))


def test_external_data_outside_the_folder_is_not_read(external):
    secret = external.parent.parent / "secret.bin"
    secret.write_bytes((external.parent / "weights.bin").read_bytes())
    model = onnx.load(external, load_external_data=False)
    for tensor in model.graph.initializer:
        for entry in tensor.external_data:
            if entry.key == "location":
                entry.value = "../secret.bin"
    external.write_bytes(model.SerializeToString())
    with pytest.raises(ExchangeError):
        load(external)


def test_compiling_for_the_cpu_target_loads_no_other_library_that_is_large(tmp_path):
    path = tmp_path / "small.onnx"
    path.write_bytes(small().SerializeToString())
    code = """
import sys
import numpy as np
from mlhood.compiler.compile import compile

model = compile(sys.argv[1], target="cpu")
assert model.run(a=np.ones(3, np.float32), b=np.ones(3, np.float32))["c"].tolist() == [2, 2, 2]
print(*({"torch", "onnxscript", "onnxruntime", "scipy", "pandas"} & sys.modules.keys()), "loaded")
"""
    command = [sys.executable, "-c", code, str(path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.stdout.strip() == "loaded", done.stderr


def weighted(**changes):
    """An Add of an input and a weight of 1 MiB, whose fields the changes replace."""
    weight = numpy_helper.from_array(np.ones((512, 512), np.float32), "b")
    for name, value in changes.items():
        weight.ClearField(name)
        if value is not None:
            getattr(weight, name).extend(value) if isinstance(value, list) else setattr(weight, name, value)
    values = [helper.make_tensor_value_info(name, TensorProto.FLOAT, [512, 512]) for name in "ac"]
    node = helper.make_node("Add", ["a", "b"], ["c"], "sum")
    graph = helper.make_graph([node], "g", values[:1], values[1:], [weight])
    return helper.make_model(graph, opset_imports=[helper.make_opsetid("", 20)], ir_version=10)


@pytest.mark.parametrize("types", [True, False])
def test_large_weights_are_checked_and_left_as_they_are(types):
    proto = weighted()
    assert load(proto, types=types) is proto
    assert proto == weighted()
    for changes in ({"raw_data": None}, {"float_data": [1.0]}, {"dims": [-1, 5]}, {"data_type": TensorProto.STRING}):
        with pytest.raises(ExchangeError, match=r"invalid|negative"):
            load(weighted(**changes), types=types)


def test_a_large_weight_does_not_hide_another_fault():
    proto = weighted()
    proto.graph.node[0].op_type = "Adder"
    with pytest.raises(ExchangeError, match="Adder"):
        load(proto, types=False)
