from __future__ import annotations

from dataclasses import replace

import pytest

from mlhood.compiler.lir.program import Lifetime
from mlhood.compiler.memory.memory_figures import side_by_side, strip_chart
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


def test_names_are_written_only_where_they_fit():
    wide, narrow = Lifetime("wide", 1 << 20, 0, 90), Lifetime("a name that is too long for it", 64, 91, 92)
    figure = strip_chart(plan([wide, narrow]))
    assert [text.get_text() for text in figure.axes[0].texts] == ["wide"]


def test_plans_side_by_side_share_the_axis_of_addresses_and_tell_both_arenas():
    buffers = [Lifetime(f"buffer {i}", 64 * (i % 7 + 1), i, i + 3) for i in range(20)]
    tight = plan(buffers)
    ends = [sum(buffer.bytes for buffer in buffers[:i]) for i in range(20)]
    bump = replace(tight, offsets={buffer.name: end for buffer, end in zip(buffers, ends, strict=True)})
    figure = side_by_side({"yours": bump, "the compiler's": tight}, "a program")
    figure.canvas.draw()
    assert [len(axes.collections[0].get_paths()) for axes in figure.axes] == [20, 20]
    assert figure.axes[0].get_ylim() == figure.axes[1].get_ylim()
    assert figure.axes[0].get_ylim()[1] >= bump.bytes / 1024
    assert all(f"{each.bytes:,} bytes" in alt_text(figure) for each in (tight, bump))
