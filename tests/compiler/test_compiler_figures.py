"""Figures of P2: they show the given numbers, and their texts do not overlap."""

import numpy as np
import pytest

from mlhood.compiler import compiler_figures
from mlhood.measure.ratio import Ratio
from tests.plotting.texts import check_texts, strings

COUNTS, EDGES = np.histogram(np.linspace(0, 10, 1000), 50)
GRIDS = {"asymmetric": (10 / 255, -128), "symmetric": (10 / 127, 0), "power_of_two": (0.125, 0)}
FIGURES = {
    "pipeline": lambda: compiler_figures.pipeline(),
    "traffic": lambda: compiler_figures.traffic({"two": {"read": 9, "z": 3}, "one": {"read": 9}}),
    "grids": lambda: compiler_figures.grids(COUNTS, EDGES, GRIDS, "relu"),
    "compared": lambda: compiler_figures.compared(np.eye(5), np.eye(5) + 0.1, 0.2),
    "waterfall": lambda: compiler_figures.waterfall(
        ["image", "conv", "pool"], [44.0, 38.0, 39.5], [44.0, 40.0, np.inf]
    ),
    "speedups": lambda: compiler_figures.speedups(
        [
            {"network": network, "type": kind, "ms": "1.23", "speed-up": Ratio(value, 0.9 * value, 1.1 * value)}
            for network, faster in {"LeNet": 0.7, "dense": 6.8}.items()
            for kind, value in {"float32": 1.0, "int8": faster, "offset": 0.8 * faster}.items()
        ]
    ),
}


@pytest.mark.parametrize("name", FIGURES)
def test_texts_can_be_read(name):
    check_texts(FIGURES[name]())


def test_grids_show_the_used_share():
    texts = " ".join(strings(compiler_figures.grids(COUNTS, EDGES, GRIDS, "relu")))
    assert "100% used" in texts
    assert "50% used" in texts


def test_a_waterfall_shows_losses_and_gains():
    texts = strings(FIGURES["waterfall"]())
    assert {"44.0", "39.5", "-6.0", "+1.5"} <= set(texts)
    assert {"loss", "gain"} <= set(texts)


def test_parameters_come_from_the_given_function():
    parameters = compiler_figures.parameters_of(
        -1, 3, ["a", "b"], lambda low, high, name: (np.float64(high - low), ord(name))
    )
    assert parameters == {"a": (4.0, 97), "b": (4.0, 98)}
