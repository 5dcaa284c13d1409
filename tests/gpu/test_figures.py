"""The figures of P3's last part: they say the numbers that were counted, and their text stays within them."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from matplotlib.text import Text

from mlhood.gpu import figures
from mlhood.gpu.ladder import RUNGS
from mlhood.gpu.simulator import launch
from mlhood.plotting.alt_text import alt_text


def lanes():
    a, b, c = np.ones((3, 16, 16), np.float32)
    reports = {name: launch(RUNGS[name].kernel, *RUNGS[name].grid(16, 16), a, b, c) for name in ("naive", "coalesced")}
    return figures.lanes(reports)


@pytest.mark.parametrize("draw", [figures.hierarchy, lanes, figures.tiles])
def test_text_is_within_the_figure(draw):
    figure = draw()
    figure.draw_without_rendering()
    for text in figure.findobj(Text):
        if text.get_visible() and text.get_text().strip() and text.axes and text.axes.axison is False:
            extent = text.get_window_extent()
            assert extent.x0 >= -1
            assert extent.x1 <= figure.bbox.width + 1
            assert extent.y0 >= -1
            assert extent.y1 <= figure.bbox.height + 1
    assert alt_text(figure)
    plt.close(figure)


def test_lanes_say_how_many_sectors_a_request_takes():
    figure = lanes()
    text = alt_text(figure)
    plt.close(figure)
    assert "naive: a, read, 16 numbers in 16 sectors" in text
    assert "coalesced: b, read, 16 numbers in 2 sectors" in text
    assert "coalesced: c, written, 32 numbers in 4 sectors" in text
