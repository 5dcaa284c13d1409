"""Shared by the tests of jaxlab: JAX on the CPU, views of one convolution, and the visible texts of a figure."""

import os

os.environ.setdefault("JAX_PLATFORMS", "cpu")  # read when JAX is first used

import jax
import matplotlib.pyplot as plt
import pytest
from matplotlib.text import Text

from mlhood.jaxlab.operators.resnet import conv2d
from mlhood.jaxlab.xla.views import OWN_CONVOLUTION, UNFUSED, view

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
    return view_of_block(OWN_CONVOLUTION)


@pytest.fixture
def visible_texts():
    """Return a function that returns the texts of a figure that are drawn."""

    def of(figure):
        figure.draw_without_rendering()
        hidden = {id(label) for axes in figure.axes for label in _labels_outside(axes)}
        texts = [text for text in figure.findobj(Text) if text.get_visible() and text.get_text().strip()]
        return [text for text in texts if id(text) not in hidden]

    yield of
    plt.close("all")


def _labels_outside(axes):
    """Yield the labels of ticks outside of the axis limits, which are not drawn."""
    for axis in (axes.xaxis, axes.yaxis):
        low, high = sorted(axis.get_view_interval())
        for tick in [*axis.get_major_ticks(), *axis.get_minor_ticks()]:
            if not low <= tick.get_loc() <= high:
                yield from (tick.label1, tick.label2)
