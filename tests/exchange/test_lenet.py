"""`lenet.onnx`: an existing file is used, a missing one is created, another model is rejected."""

import numpy as np
import pytest

from mlhood import exchange
from mlhood.errors import ExchangeError
from mlhood.models import digits


def test_a_missing_file_is_created_and_classifies_digits(tmp_path):
    path = tmp_path / "lenet.onnx"
    assert "trained a LeNet" in exchange.lenet_onnx(path)
    data = digits()
    logits = exchange.run(path, image=data.test_images)["logits"]
    assert np.mean(logits.argmax(1) == data.test_labels) > 0.95
    before = path.read_bytes()
    exchange.lenet_onnx(tmp_path / "again.onnx")
    assert (tmp_path / "again.onnx").read_bytes() == before
    assert "existing" in exchange.lenet_onnx(path)
    assert path.read_bytes() == before


def test_a_model_with_other_names_is_rejected(tmp_path, lenet):
    path = exchange.export(lenet, np.zeros((2, 1, 32, 32), np.float32), tmp_path / "x.onnx", input_names=["pixels"])
    with pytest.raises(ExchangeError, match="pixels"):
        exchange.lenet_onnx(path)


def test_an_invalid_file_is_rejected_and_kept(tmp_path):
    path = tmp_path / "lenet.onnx"
    path.write_bytes(b"not a model")
    with pytest.raises(ExchangeError):
        exchange.lenet_onnx(path)
    assert path.read_bytes() == b"not a model"
