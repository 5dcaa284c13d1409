from __future__ import annotations

import matplotlib.pyplot as plt
import pytest

from mlhood.compiler.lir.program import Lifetime
from mlhood.compiler.memory.memory_figures import strip_chart
from mlhood.compiler.memory.plan import plan
from mlhood.plotting.alt_text import alt_text


@pytest.mark.parametrize("count", [0, 1, 5, 300])
def test_a_chart_has_a_rectangle_for_each_buffer_and_its_numbers_as_text(count):
    made = plan([Lifetime(f"buffer {i}", 64 * (i % 7 + 1), i, i + 3) for i in range(count)])
    figure = strip_chart(made, "a program")
    figure.canvas.draw()
    (boxes,) = figure.axes[0].collections
    assert len(boxes.get_paths()) == count
    assert f"{count} buffers" in alt_text(figure)
    assert f"an arena of {made.bytes:,} bytes" in alt_text(figure)
    plt.close(figure)


def test_names_are_written_only_where_they_fit():
    wide, narrow = Lifetime("wide", 1 << 20, 0, 90), Lifetime("a name that is too long for it", 64, 91, 92)
    figure = strip_chart(plan([wide, narrow]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["wide"]
    plt.close(figure)
