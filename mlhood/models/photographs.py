"""Two real photographs as inputs of a ResNet."""

from __future__ import annotations

import numpy as np

# Mean and standard deviation of ImageNet's red, green and blue, as used to train torchvision's weights.
IMAGENET_MEAN = (0.485, 0.456, 0.406)
IMAGENET_STD = (0.229, 0.224, 0.225)


def photographs() -> np.ndarray:
    """Return scikit-learn's two photographs (a Chinese temple, a flower) as float32 [2, 3, 224, 224].

    Preprocessed as by torchvision for ResNet: the shorter side resized to 256 (bilinear, antialiased), the centre
    224 x 224 cropped, scaled to 0..1, and normalised with ImageNet's mean and standard deviation. No network is
    needed.
    """
    from sklearn.datasets import load_sample_image

    return np.stack([_preprocess(load_sample_image(name)) for name in ("china.jpg", "flower.jpg")])


def _preprocess(pixels: np.ndarray) -> np.ndarray:
    from PIL import Image

    image = Image.fromarray(pixels)
    shorter = min(image.size)
    width, height = (int(256 * side / shorter) for side in image.size)
    image = image.resize((width, height), Image.Resampling.BILINEAR)
    left, top = (width - 224) // 2, (height - 224) // 2
    square = np.asarray(image.crop((left, top, left + 224, top + 224)), np.float32) / np.float32(255)
    normal = (square - np.array(IMAGENET_MEAN, np.float32)) / np.array(IMAGENET_STD, np.float32)
    return np.ascontiguousarray(normal.transpose(2, 0, 1))
