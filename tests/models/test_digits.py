"""The digits: real, split fairly, normalised, and the same bytes everywhere."""

import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from mlhood.errors import ModelError
from mlhood.models import digits

# Whole-number arithmetic up to one subtraction and one division in float32: no machine may differ.
GOLDEN = "18558dd59bf21cfd86e3f731502a8d814208203b5202f96f66d340ba68b08667"


@pytest.fixture(autouse=True)
def no_mnist(monkeypatch):
    monkeypatch.delenv("MLHOOD_MNIST", raising=False)


def test_shapes_and_dtypes():
    data = digits()
    assert data.train_images.shape == (1501, 1, 32, 32)
    assert data.test_images.shape == (296, 1, 32, 32)
    assert {image.dtype for image in (data.train_images, data.test_images)} == {np.dtype(np.float32)}
    assert {label.dtype for label in (data.train_labels, data.test_labels)} == {np.dtype(np.int64)}
    assert "scikit-learn" in data.source


def test_same_bytes_everywhere():
    data = digits()
    digest = hashlib.sha256(b"".join(part.astype(part.dtype.newbyteorder("<")).tobytes() for part in data[:4]))
    assert digest.hexdigest() == GOLDEN


def test_split_is_stratified():
    data = digits()
    for label in range(10):
        train, test = (data.train_labels == label).sum(), (data.test_labels == label).sum()
        assert test / (train + test) == pytest.approx(1 / 6, abs=0.01)


def test_normalised_over_the_training_part():
    data = digits()
    assert data.train_images.mean() == pytest.approx(0, abs=1e-5)
    assert data.train_images.std() == pytest.approx(1, abs=1e-5)


def test_enlarged_as_torch_does_it():
    """The multiset of images equals torch's bilinear interpolation of the originals, up to normalisation."""
    data = digits()
    small = torch.tensor(load_digits().images[:, None], dtype=torch.float32)
    large = torch.nn.functional.interpolate(small, 24, mode="bilinear", align_corners=False)
    large = torch.nn.functional.pad(large, [4] * 4).numpy()
    ours = np.concatenate([data.train_images, data.test_images]).reshape(-1, 1024)
    low, high = ours.min(), ours.max()
    expected = large.reshape(-1, 1024) / 16
    order = np.lexsort(np.round((ours - low) / (high - low), 3).T)
    wanted = np.lexsort(np.round(expected, 3).T)
    np.testing.assert_allclose(((ours - low) / (high - low))[order], expected[wanted], atol=2e-3)


def test_a_missing_mnist_folder_is_said(monkeypatch, tmp_path):
    monkeypatch.setenv("MLHOOD_MNIST", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="no such MNIST folder") as caught:
        digits()
    assert "MLHOOD_MNIST" in caught.value.parts["what to do"]
    assert digits(mnist="").source.startswith("scikit-learn")
