"""What the tests of JAX share: the CPU, whatever else the machine has, and a convolution to look at."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is first used

import jax
import pytest

from mlhood.jaxlab.operators.resnet import conv2d
from mlhood.jaxlab.xla.views import OWN_CONVOLUTION, UNFUSED, view

SHAPES = (1, 8, 10, 12), (16, 8, 3, 3), (16,)


def conv_bias_relu(x, w, bias):
    return jax.nn.relu(conv2d(x, w, bias, 1, 1))


def seen(options=None):
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in SHAPES]
    return view(conv_bias_relu, *arguments, options=options)


@pytest.fixture(scope="session")
def plain():
    return seen()


@pytest.fixture(scope="session")
def unfused():
    return seen(UNFUSED)


@pytest.fixture(scope="session")
def own():
    return seen(OWN_CONVOLUTION)
