"""The picture of fused attention: its blocks are those that the kernel visits, its factors those of the count."""

from matplotlib.patches import Rectangle

from mlhood.jaxlab.pallas.pallas_figures import LENGTHS, fused_attention, traffic
from mlhood.plotting.alt_text import alt_text


def test_blocks_left_of_the_diagonal_are_computed_and_bars_are_the_counted_bytes():
    figure = fused_attention()
    blocks, bars = (axes.patches for axes in figure.axes)
    drawn = [patch for patch in blocks if isinstance(patch, Rectangle)]
    computed = {(patch.get_y() // 64, patch.get_x() // 64) for patch in drawn if not patch.get_hatch()}
    assert len(drawn) == 64
    assert computed == {(row, column) for row in range(8) for column in range(row + 1)}
    assert "computes 36 of 64 blocks" in alt_text(figure)
    counted = [traffic(length, length, 64) for length in LENGTHS]
    heights = [each.unfused / 1e6 for each in counted] + [each.fused / 1e6 for each in counted]
    assert [bar.get_height() for bar in bars] == heights
    assert f"1024 keys {counted[2].factor:.1f} times" in alt_text(figure).replace(": ", " ")
