"""The digits: a stratified split, normalised, and bit-identical on every machine."""

import hashlib

import numpy as np
import pytest
import torch
from sklearn.datasets import load_digits

from mlhood.errors import ModelError
from mlhood.models import digits

# Integer arithmetic, except for one subtraction and one division in float32: identical on every machine.
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


def test_bit_identical_on_every_machine():
    data = digits()
    digest = hashlib.sha256(b"".join(part.astype(part.dtype.newbyteorder("<")).tobytes() for part in data[:4]))
    assert digest.hexdigest() == GOLDEN


def test_split_is_stratified():
    data = digits()
    for label in range(10):
        train, test = (data.train_labels == label).sum(), (data.test_labels == label).sum()
        assert test / (train + test) == pytest.approx(1 / 6, abs=0.01)


def test_normalised_over_the_training_set():
    data = digits()
    assert data.train_images.mean() == pytest.approx(0, abs=1e-5)
    assert data.train_images.std() == pytest.approx(1, abs=1e-5)


def test_enlarged_as_by_torch():
    """The multiset of images equals torch's bilinear interpolation of the originals, up to normalisation."""
    data = digits()
    small = torch.tensor(load_digits().images[:, None], dtype=torch.float32)
    large = torch.nn.functional.interpolate(small, 24, mode="bilinear", align_corners=False)
    large = torch.nn.functional.pad(large, [4] * 4).numpy()
    ours = np.concatenate([data.train_images, data.test_images]).reshape(-1, 1024)
    low, high = ours.min(), ours.max()
    expected = large.reshape(-1, 1024) / 16
    scaled = (ours - low) / (high - low)
    order, expected_order = (np.lexsort(np.round(images, 3).T) for images in (scaled, expected))
    np.testing.assert_allclose(scaled[order], expected[expected_order], atol=2e-3)


def test_a_missing_mnist_folder_raises(monkeypatch, tmp_path):
    monkeypatch.setenv("MLHOOD_MNIST", str(tmp_path / "nowhere"))
    with pytest.raises(ModelError, match="MNIST is missing") as caught:
        digits()
    assert "MLHOOD_MNIST" in caught.value.parts["what to do"]
    assert digits(mnist="").source.startswith("scikit-learn")
