"""Pictures of P2: they draw, say the numbers that they are given, and keep their words apart."""

from itertools import combinations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from mlhood.compiler import compiler_figures

STEPS = pd.DataFrame({"pass": ["fold_a", "same", "fuse_b"], "nodes before": [69, 40, 40], "nodes after": [40, 40, 24]})
COUNTS, EDGES = np.histogram(np.linspace(0, 10, 1000), 50)
GRIDS = {"asymmetric": (10 / 255, -128), "symmetric": (10 / 127, 0), "power_of_two": (0.125, 0)}
PICTURES = {
    "pipeline": lambda: compiler_figures.pipeline(),
    "linear_relu": lambda: compiler_figures.linear_relu(),
    "traffic": lambda: compiler_figures.traffic({"two": {"read": 9, "z": 3}, "one": {"read": 9}}),
    "history": lambda: compiler_figures.history(STEPS),
    "grids": lambda: compiler_figures.grids(COUNTS, EDGES, GRIDS, "relu"),
    "compared": lambda: compiler_figures.compared(np.eye(5), np.eye(5) + 0.1, 0.2),
    "waterfall": lambda: compiler_figures.waterfall(
        ["image", "conv", "pool"], [44.0, 38.0, 39.5], [44.0, 40.0, np.inf]
    ),
    "schemas": lambda: compiler_figures.schemas({"a": 41.0, "b": 38.0}, {"a": 0.99, "b": 0.98}),
}


@pytest.fixture
def words():
    def of(figure):
        figure.canvas.draw()
        return [text for text in figure.findobj(plt.Text) if text.get_visible() and text.get_text().strip()]

    yield of
    plt.close("all")


@pytest.mark.parametrize("name", PICTURES)
def test_words_do_not_stand_on_each_other(name, words):
    figure = PICTURES[name]()
    shown = words(figure)
    boxes = [(text.get_text(), text.get_window_extent()) for text in shown]
    inside = [(text, box) for text, box in boxes if box.width and box.height]
    overlaps = [(a, b) for (a, one), (b, other) in combinations(inside, 2) if _shared(one, other) > 4]
    assert overlaps == []


def _shared(one, other):
    """Pixels squared that two boxes share, less a margin for the empty rim of letters."""
    width = min(one.x1, other.x1) - max(one.x0, other.x0) - 1
    height = min(one.y1, other.y1) - max(one.y0, other.y0) - 3
    return max(width, 0) * max(height, 0)


def test_the_history_leaves_out_what_removed_nothing(words):
    said = [text.get_text() for text in words(compiler_figures.history(STEPS))]
    assert "fold a" in said
    assert "same" not in said
    assert " 24  (-16)" in said


def test_grids_say_how_much_of_them_is_used(words):
    said = " ".join(text.get_text() for text in words(compiler_figures.grids(COUNTS, EDGES, GRIDS, "relu")))
    assert "100% used" in said
    assert "50% used" in said


def test_a_waterfall_tells_what_is_lost_and_what_comes_back(words):
    said = [text.get_text() for text in words(PICTURES["waterfall"]())]
    assert {"44.0", "39.5", "-6.0", "+1.5"} <= set(said)
    assert {"lost here", "won back"} <= set(said)


def test_parameters_come_from_the_given_function():
    found = compiler_figures.parameters_of(
        -1, 3, ["a", "b"], lambda low, high, name: (np.float64(high - low), ord(name))
    )
    assert found == {"a": (4.0, 97), "b": (4.0, 98)}
