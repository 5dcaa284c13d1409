"""The file that P2 begins with: taken where P1 has left it, made where it is missing, refused where it is another."""

import numpy as np
import pytest

from mlhood import exchange
from mlhood.errors import ExchangeError
from mlhood.models import digits


def test_a_missing_file_is_made_and_reads_digits(tmp_path):
    path = tmp_path / "lenet.onnx"
    assert "was trained" in exchange.lenet_onnx(path)
    data = digits()
    logits = exchange.run(path, image=data.test_images)["logits"]
    assert np.mean(logits.argmax(1) == data.test_labels) > 0.95
    before = path.read_bytes()
    exchange.lenet_onnx(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == before
    assert "as it is" in exchange.lenet_onnx(path)
    assert path.read_bytes() == before


def test_another_model_is_refused_by_its_names(tmp_path, lenet):
    path = exchange.export(lenet, np.zeros((2, 1, 32, 32), np.float32), tmp_path / "x.onnx", input_names=["pixels"])
    with pytest.raises(ExchangeError, match="pixels"):
        exchange.lenet_onnx(path)


def test_a_broken_file_is_refused_and_kept(tmp_path):
    path = tmp_path / "lenet.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(ExchangeError):
        exchange.lenet_onnx(path)
    assert path.read_bytes() == b"not a model"
