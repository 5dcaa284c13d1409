"""The photographs, against torch's antialiased interpolation."""

import numpy as np
import torch
from sklearn.datasets import load_sample_images

from mlhood.models import photographs


def test_preprocessed_as_by_torch():
    images = photographs()
    assert images.shape == (2, 3, 224, 224)
    assert images.dtype == np.float32
    assert images.flags.c_contiguous
    for ours, pixels in zip(images, load_sample_images().images, strict=True):
        large = torch.tensor(pixels).permute(2, 0, 1)[None].float()
        small = torch.nn.functional.interpolate(large, (256, 383), mode="bilinear", antialias=True)
        square = small[0, :, 16:240, 79:303] / 255
        mean, std = torch.tensor([[0.485, 0.456, 0.406], [0.229, 0.224, 0.225]])[:, :, None, None]
        expected = (square - mean) / std
        # Pillow rounds to integer pixel values, twice.
        assert np.abs(ours - expected.numpy()).max() < 2.5 / 255 / 0.224
