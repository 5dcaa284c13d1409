"""Shared by the tests of jaxlab: JAX on the CPU, and views of one convolution."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is first used

import jax
import pytest

from mlhood.jaxlab.operators.resnet import conv2d
from mlhood.jaxlab.xla.views import UNFUSED, view

SHAPES = (1, 8, 10, 12), (16, 8, 3, 3), (16,)


def conv_bias_relu(x, w, bias):
    return jax.nn.relu(conv2d(x, w, bias, 1, 1))


def view_of_block(options=None):
    arguments = [jax.ShapeDtypeStruct(shape, "float32") for shape in SHAPES]
    return view(conv_bias_relu, *arguments, options=options)


@pytest.fixture(scope="session")
def plain():
    return view_of_block()


@pytest.fixture(scope="session")
def unfused():
    return view_of_block(UNFUSED)


@pytest.fixture(scope="session")
def own_convolution():
    # XLA calls no library for what it cannot bring into the library's layout (xla/service/cpu/conv_canonicalization.cc)
    return view_of_block({"xla_disable_hlo_passes": "convolution-canonicalization"})
